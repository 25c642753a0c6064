"""Names of columns, rows and classes live from a file to the model to its predictions, and are checked by name."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api import files
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.data.entries import encode
from bcmdist.data.partition import partitions
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import plain
from bcmdist.data.tables.importing import Split, import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.data.tables.writing import write_table
from bcmdist.data.writing import append_rows, write_dataset
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidDtype, InvalidOption, UnsupportedTarget

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 120
COLUMNS = ("depth", "north", "east")
QUICK = {"partition": "chunks", "query": 20, "learn": False, "kernel": "se", "rows_per_expert": 30}
SAME = {"rtol": 0.0, "atol": 1e-12}  # the same sums over the same numbers


@pytest.fixture
def table(rng):
    """A frame with names of rows, three inputs, a target, labels and a text that nobody needs."""
    frame = pd.DataFrame(rng.standard_normal((ROWS, 3)), columns=COLUMNS)
    frame.insert(0, "site", [f"{k:04}" for k in range(ROWS)])
    frame["y"] = np.sin(frame.depth) + 0.5 * frame.north
    frame["soil"] = np.select([frame.depth > 0.4, frame.depth < -0.4], ["wet clay", "sand"], "loam")
    frame["note"] = "dry"
    assert frame.shape == (ROWS, 7)
    return frame


@pytest.fixture
def regression(table, tmp_path):
    """A model of the target, and the data set it was fitted to."""
    data = imported(table.drop(columns=["soil", "note"]), tmp_path / "train.zarr", id="site")
    return GBCM.fit(data, Settings(**QUICK, task="regression"), model=tmp_path / "model"), data


def imported(frame, path, *, split=None, **roles):
    """A frame by way of a .csv file as a data set."""
    frame.to_csv(path.with_suffix(".csv"), index=False)
    import_file(path.with_suffix(".csv"), path, roles=Roles(**roles), split=split, rows_per_chunk=30)
    return str(path)


def written(path):
    group = zarr.open_group(path, mode="r")
    return {name: group[name][...] for name in group.array_keys()}


def predict(arguments):
    """The command, whose warnings are lines on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        return CliRunner().invoke(cli, ["predict", *map(str, arguments), "--serial", "--json"], catch_exceptions=False)


# --- Columns ---


def test_model_and_info_know_the_columns(regression):
    gbcm, _ = regression
    assert gbcm.info()["columns"] == list(COLUMNS)
    roles = (("y", "y"),)
    assert GBCM.load(gbcm.url).model.schema == Schema(COLUMNS, coding=replace(plain(COLUMNS), roles=roles))


def test_another_order_is_put_right(regression, table, tmp_path):
    gbcm, data = regression
    swapped = imported(table[["east", "y", "depth", "north"]], tmp_path / "swapped.zarr")
    gbcm.predict_zarr(data, tmp_path / "a.zarr")
    gbcm.predict_zarr(swapped, tmp_path / "b.zarr")
    np.testing.assert_allclose(written(tmp_path / "b.zarr")["mean"], written(tmp_path / "a.zarr")["mean"], **SAME)
    assert gbcm.score(swapped)["rmse"] == pytest.approx(gbcm.score(data)["rmse"], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda f: f.rename(columns={"north": "nord"}), r"'north' is not there \(but 'nord'\); add what is missing"),
        (lambda f: f.drop(columns="north"), "'north' is not there; add"),
        (lambda f: f.drop(columns=["north", "east"]).assign(a=1.0, b=2.0), "'north', 'east' are not there"),
    ],
)
def test_columns_that_are_missing_are_named(change, text, regression, table, tmp_path):
    gbcm, _ = regression
    data = imported(change(table.drop(columns=["site", "soil", "note"])), tmp_path / "other.zarr")
    for act in (gbcm.score, gbcm.partial_fit, lambda d: gbcm.predict_zarr(d, tmp_path / "p.zarr")):
        with pytest.raises(InvalidData, match=text):
            act(data)
    assert not (tmp_path / "p.zarr").exists()
    assert GBCM.load(gbcm.url).commit == gbcm.commit


def test_further_columns_are_left_out_and_named(regression, table, tmp_path):
    gbcm, data = regression
    more = imported(table.drop(columns=["site", "soil", "note"]).assign(age=np.nan).fillna(3.0), tmp_path / "more.zarr")
    with pytest.warns(BcmdistWarning, match="'age' not used: no input of the model has that name"):
        assert gbcm.score(more)["rmse"] == pytest.approx(gbcm.score(data)["rmse"], abs=1e-12)


def test_columns_without_names_are_taken_in_order_with_a_word(regression, table, tmp_path):
    gbcm, data = regression
    write_dataset(tmp_path / "plain.zarr", {"X": table[list(COLUMNS)].to_numpy(), "y": table.y.to_numpy()})
    with pytest.warns(BcmdistWarning, match="no names, they are taken for 'depth', 'north', 'east' in this order"):
        assert gbcm.score(tmp_path / "plain.zarr")["rmse"] == pytest.approx(gbcm.score(data)["rmse"], abs=1e-12)


@pytest.mark.slow
def test_what_is_ingested_is_put_in_order(regression, table, tmp_path):
    gbcm, data = regression
    new = table.assign(depth=table.depth + 0.1)[["north", "y", "east", "depth"]]
    straight = imported(new[[*COLUMNS, "y"]], tmp_path / "straight.zarr")
    swapped = imported(new, tmp_path / "swapped.zarr")
    expected = gbcm.absorb(partitions(open_data(straight), 30)).committee.total
    assert expected.rows == 2 * ROWS
    for number, compute_messages in enumerate(
        [lambda model: model.absorb(partitions(open_data(swapped), 30)), lambda model: model.partial_fit(swapped)]
    ):
        model = GBCM.fit(data, Settings(**QUICK, task="regression"), model=tmp_path / f"model{number}")
        np.testing.assert_allclose(compute_messages(model).committee.total.eta, expected.eta, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_forgetting_reads_in_order(regression, table, tmp_path):
    gbcm, _ = regression
    swapped = imported(
        table.assign(depth=table.depth + 0.1)[["north", "y", "east", "depth"]], tmp_path / "swapped.zarr"
    )
    absorbed = gbcm.partial_fit(swapped)
    back = absorbed.forget([entry.key for entry in absorbed.ledger[len(gbcm.ledger) :]])
    np.testing.assert_allclose(back.committee.total.eta, gbcm.committee.total.eta, rtol=0, atol=1e-9)


def test_messages_name_the_column(regression, table, tmp_path):
    gbcm, data = regression
    X = table[list(COLUMNS)].to_numpy().copy()
    X[3, 1] = np.nan
    with pytest.raises(InvalidData, match=r"got nan at row 3, column 1 \('north'\)"):
        gbcm.predict(X)
    group = zarr.open_group(data)
    group["X"][3, 1] = np.nan
    with pytest.raises((InvalidData, OSError), match=r"row 3, column 1 .'north'|hash differs|of the manifest"):
        gbcm.score(data)


@pytest.mark.slow
def test_frames_are_checked_by_name(regression, table):
    gbcm, _ = regression
    expected = gbcm.predict(table[list(COLUMNS)].to_numpy())["mean"]
    with pytest.warns(BcmdistWarning, match="X: 'note' not used"):
        mean = gbcm.predict(table[["east", "note", "north", "depth"]])["mean"]
    np.testing.assert_allclose(mean, expected, **SAME)
    np.testing.assert_allclose(gbcm.predict_joint(table[["east", "north", "depth"]])[0], expected, rtol=0, atol=1e-9)
    with pytest.raises(InvalidData, match="'east' is not there"):
        gbcm.predict(table[["north", "depth"]])
    fitted = GBCM.fit((table[list(COLUMNS)], table.soil), Settings(**QUICK))
    assert fitted.info()["columns"] == list(COLUMNS)
    assert set(fitted.predict(table[list(COLUMNS)])["label"]) <= {"loam", "sand", "wet clay"}


@pytest.mark.filterwarnings("ignore:X. 'wet', 'note' not used")
@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.convert_dtypes(),
        lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
        lambda f: f.assign(north=f.north.astype("float32").astype(float).astype(object)).astype({"north": "Float64"}),
        lambda f: f.assign(note="dry", wet=True)[["wet", "north", "note", "east", "depth"]],
    ],
)
def test_frames_of_several_types_are_numbers(change, regression, table):
    gbcm, _ = regression
    expected = gbcm.predict(table[list(COLUMNS)].to_numpy())["mean"]
    np.testing.assert_allclose(
        gbcm.predict(change(table[list(COLUMNS)]))["mean"], expected, rtol=0, atol=1e-6
    )  # float32


def test_true_and_false_are_numbers_in_frames(table):
    frame = table[list(COLUMNS)].assign(wet=table.depth > 0)
    gbcm = GBCM.fit((frame, table.y), Settings(**QUICK, task="regression"))
    expected = gbcm.predict(frame.to_numpy(dtype=float))["mean"]
    np.testing.assert_allclose(gbcm.predict(frame)["mean"], expected, **SAME)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda f: f.assign(north=[f"far {k}" for k in range(len(f))]),
            "X: expected .*, got (others|texts) in 'north'",
        ),
        (lambda f: f.convert_dtypes().assign(east=pd.NA), "got others in 'east'"),
        (
            lambda f: pytest.importorskip("pyarrow").RecordBatch.from_pandas(f),
            "expected an array or a data frame, got RecordBatch",
        ),
        (lambda f: [[1.0], [1.0, 2.0]], "expected an array or a data frame, got list"),
    ],
)
def test_frames_of_no_numbers_are_refused(change, text, regression, table):
    gbcm, _ = regression
    with pytest.raises(InvalidDtype, match=text):
        gbcm.predict(change(table[list(COLUMNS)]))
    changed = change(table[list(COLUMNS)])
    if hasattr(changed, "assign"):  # a data frame is used as far as it can be
        with pytest.warns(BcmdistWarning, match="not used"):
            fitted = GBCM.fit((changed, table.y), Settings(**QUICK))
        assert fitted.model.inputs == len(COLUMNS) - 1
        with pytest.warns(BcmdistWarning, match="not used"):
            assert np.all(np.isfinite(fitted.predict(changed)["mean"]))
        return
    with pytest.raises(InvalidDtype, match=text):
        GBCM.fit((changed, table.y), Settings(**QUICK))


def test_numbers_that_name_columns_of_a_frame_are_names(table):
    frame = table[list(COLUMNS)].set_axis([30, 10, 20], axis=1)
    gbcm = GBCM.fit((frame, table.y), Settings(**QUICK, task="regression"))
    assert gbcm.info()["columns"] == ["30", "10", "20"]
    np.testing.assert_allclose(gbcm.predict(frame[[10, 20, 30]])["mean"], gbcm.predict(frame)["mean"], **SAME)
    with pytest.raises(InvalidData, match=r"'20' is not there .but '40'"):
        gbcm.predict(frame.rename(columns={20: 40}))


# --- Rows ---


def test_predictions_can_be_joined_with_their_rows(regression, table, tmp_path):
    gbcm, _ = regression
    frame = table.drop(columns=["soil", "note"])
    test = imported(frame, tmp_path / "test.zarr", split=Split("test", holdout=0.3, seed=4), id="site")
    gbcm.predict_zarr(test, tmp_path / "p.zarr")
    said = written(tmp_path / "p.zarr")
    assert zarr.open_group(tmp_path / "p.zarr", mode="r").attrs["inputs"] == list(COLUMNS)
    assert said["site"].tolist() == frame.site[said["row"]].tolist()
    expected = gbcm.predict(frame.loc[said["row"], list(COLUMNS)].to_numpy())["mean"]
    np.testing.assert_allclose(said["mean"], expected, **SAME)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".zarr"])
def test_a_file_in_and_a_file_out(suffix, regression, table, tmp_path):
    gbcm, _ = regression
    new = table[["note", "east", "site", "north", "depth"]]
    new.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / f"out{suffix}"
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", out, "--id", "site"])
    assert done.exit_code == 0, done.stderr
    assert "'note' not used: no input of the model has that name" in done.stderr
    assert json.loads(done.stdout)["unused"] == {"note": "no input of the model has that name"}
    if suffix == ".zarr":
        said = pd.DataFrame({n: v for n, v in written(out).items() if n != "column"})
    else:
        said = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, dtype={"site": str})
        assert list(said)[:2] == ["row", "site"]
    assert said.site.tolist() == table.site.tolist()
    expected = gbcm.predict(table[list(COLUMNS)].to_numpy())
    for name in ("mean", "variance", "lower95", "upper95"):
        np.testing.assert_allclose(said[name], expected[name], rtol=1e-12)
    assert sorted(path.name for path in tmp_path.glob("*partial*")) == []
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", out, "--id", "site"])
    assert done.exit_code == 1
    assert "DataExists" in done.stderr


def test_coordinates_keep_their_attributes(regression, table, tmp_path):
    xr = pytest.importorskip("xarray")
    gbcm, _ = regression
    when = pd.date_range("2026-01-01", periods=ROWS).to_numpy()
    data = xr.Dataset(
        {"X": (("point", "feature"), table[list(COLUMNS)].to_numpy())},
        coords={
            "feature": list(COLUMNS),
            "time": ("point", when, {"long_name": "day of the sample"}),
            "site": ("point", table.site.to_numpy().astype(object)),
        },
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata
        data.to_zarr(tmp_path / "new.zarr")
    gbcm.predict_zarr(tmp_path / "new.zarr", tmp_path / "p.zarr")
    with xr.open_zarr(tmp_path / "p.zarr", chunks=None) as said:  # without a warning
        assert said["mean"].dims == ("point",)
        np.testing.assert_array_equal(said["time"].to_numpy(), when)
        assert said["time"].attrs["long_name"] == "day of the sample"
        assert said["site"].to_numpy().tolist() == table.site.tolist()
    done = predict([gbcm.url, tmp_path / "new.zarr", "--out", tmp_path / "p.csv"])
    assert done.exit_code == 0, done.stderr
    assert pd.to_datetime(pd.read_csv(tmp_path / "p.csv")["time"]).tolist() == list(pd.DatetimeIndex(when))


@pytest.mark.slow
def test_rows_without_a_target_are_imported(regression, table, tmp_path):
    gbcm, data = regression
    frame = table[["site", *COLUMNS]]
    new = imported(frame, tmp_path / "new.zarr", target=False, id="site")
    assert "y" not in written(new)
    gbcm.predict_zarr(new, tmp_path / "p.zarr")
    with pytest.warns(BcmdistWarning, match="'y' not used: the target, --no-target"):
        new = imported(frame.assign(y=np.nan), tmp_path / "nan.zarr", target=False, id="site")
    assert "y" not in written(new)
    gbcm.predict_zarr(data, tmp_path / "q.zarr")
    np.testing.assert_allclose(written(tmp_path / "p.zarr")["mean"], written(tmp_path / "q.zarr")["mean"], **SAME)


@pytest.mark.slow
def test_an_input_may_be_called_as_the_target(table, tmp_path):
    data = imported(table[[*COLUMNS, "y"]].rename(columns={"y": "z", "east": "y"}), tmp_path / "d.zarr", y="z")
    gbcm = GBCM.fit(data, Settings(**QUICK, task="regression"), model=tmp_path / "m")
    table[[*COLUMNS]].rename(columns={"east": "y"}).to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv"])
    assert done.exit_code == 0, done.stderr
    expected = gbcm.predict(table[list(COLUMNS)].to_numpy())["mean"]
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["mean"], expected, rtol=1e-9)


@pytest.mark.slow
def test_arrays_of_a_model_may_have_any_name(table, tmp_path):
    """A file has columns, which do not depend on them."""
    write_dataset(
        tmp_path / "d.zarr",
        {"temps": table[list(COLUMNS)].to_numpy(), "yield": table.y.to_numpy()},
    )
    settings = Settings(**QUICK, task="regression", x="temps", y="yield")
    gbcm = GBCM.fit(tmp_path / "d.zarr", settings, model=tmp_path / "m")
    table[list(COLUMNS)].to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv"])
    assert done.exit_code == 0, done.stderr
    table[["depth"]].to_csv(tmp_path / "less.csv", index=False)
    done = predict([gbcm.url, tmp_path / "less.csv", "--out", tmp_path / "q.csv"])
    assert f"{tmp_path / 'less.csv'}: expected 3 inputs, as in training, got 1" in done.stderr


def test_inputs_of_a_model_cannot_be_left_out(regression, table, tmp_path):
    gbcm, _ = regression
    table.assign(north="far").to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv"])
    assert "texts in 'north' (all cells, the first 'far' at row 0); correct them" in done.stderr
    assert "--drop" not in done.stderr


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--exposure", "note"], "--exposure: expected a likelihood that uses it, got gaussian; leave it out"),
        (["--id", "north"], "one role for a column, got 'north' for several"),
        (["--id", "site id"], "--id: expected a name .* without blanks"),
        (["--x", "X"], "expected a data set with --x, got a file"),
    ],
)
def test_roles_that_make_no_sense_are_refused(more, text, regression, table, tmp_path):
    gbcm, _ = regression
    table.to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv", *more])
    assert done.exit_code == 1
    assert re.search(text, done.stderr)
    assert not list(tmp_path.glob("p.csv*"))


# --- Classes ---


@pytest.fixture
def soils(table, tmp_path):
    """A model of three classes that are texts, and their data set."""
    data = imported(table[[*COLUMNS, "soil"]], tmp_path / "soils.zarr", y="soil")
    return GBCM.fit(data, Settings(**QUICK), model=tmp_path / "soil-model"), data


@pytest.mark.slow
def test_labels_are_texts_from_end_to_end(soils, table, tmp_path):
    gbcm, data = soils
    assert gbcm.info()["classes"] == ["loam", "sand", "wet clay"]
    label = gbcm.predict(table[list(COLUMNS)])["label"]
    assert np.mean(label == table.soil) > 0.8
    gbcm.predict_zarr(data, tmp_path / "p.zarr")
    said = written(tmp_path / "p.zarr")
    assert said["label"].tolist() == label.tolist()
    assert said["class"].tolist() == ["loam", "sand", "wet clay"]
    table[list(COLUMNS)].to_csv(tmp_path / "new.csv", index=False)
    assert predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv"]).exit_code == 0
    frame = pd.read_csv(tmp_path / "p.csv")
    assert frame.label.tolist() == label.tolist()
    np.testing.assert_allclose(frame["probability_wet clay"], said["probability"][:, 2], rtol=1e-12)


def test_names_of_rows_do_not_replace_predictions(soils, table, tmp_path):
    gbcm, _ = soils
    table[list(COLUMNS)].assign(probability_sand=table.site).to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--id", "probability_sand"])
    assert "'probability_sand' names rows too" in done.stderr
    assert not list(tmp_path.glob("p.csv*"))


def test_classes_are_known_by_name_in_another_file(soils, table, tmp_path):
    """A file with two of three classes numbers them otherwise."""
    gbcm, _ = soils
    some = table[table.soil != "loam"]
    data = imported(some[[*COLUMNS, "soil"]], tmp_path / "some.zarr", y="soil")
    label = gbcm.predict(some[list(COLUMNS)])["label"]
    assert gbcm.score(data)["accuracy"] == pytest.approx(np.mean(label == some.soil))
    new = imported(some.assign(soil="rock")[[*COLUMNS, "soil"]], tmp_path / "rock.zarr", y="soil")
    with pytest.raises(UnsupportedTarget, match="got rock at row 0"):
        gbcm.score(new)
    write_dataset(tmp_path / "n.zarr", {"X": some[list(COLUMNS)].to_numpy(), "y": np.zeros(len(some))})
    with pytest.warns(BcmdistWarning, match="no names"), pytest.raises(InvalidData, match="class names as in training"):
        gbcm.score(tmp_path / "n.zarr")


def test_texts_are_no_measurements(soils):
    _, data = soils
    with pytest.raises(InvalidOption, match=r"--task classification for targets that are names of classes in y .loam"):
        GBCM.fit(data, Settings(**QUICK, task="regression"))


@pytest.mark.slow
def test_two_classes_of_text_and_local_prediction(table, tmp_path):
    frame = table.assign(wet=np.where(table.depth > 0, "yes", "no"))[["east", "north", "depth", "wet"]]
    data = imported(frame, tmp_path / "wet.zarr", y="wet")
    gbcm = GBCM.fit(data, Settings(**QUICK | {"partition": "spatial"}), model=tmp_path / "wet")
    swapped = imported(frame[[*COLUMNS, "wet"]], tmp_path / "swapped.zarr", y="wet")
    assert gbcm.score(swapped)["accuracy"] > 0.9
    gbcm.predict_zarr(swapped, tmp_path / "p.zarr")
    label = gbcm.predict(frame[["east", "north", "depth"]])["label"]
    assert set(label) == {"yes", "no"}
    assert written(tmp_path / "p.zarr")["label"].tolist() == label.tolist()


# --- What was taken for what ---


def test_lifetimes_do_not_lose_their_censoring(make_data, rng):
    data = make_data("l.zarr", X=rng.standard_normal((60, 1)), y=rng.exponential(size=60), event=rng.integers(0, 2, 60))
    with pytest.raises(InvalidOption, match=r"--task, got none for targets y beside an array event.*--task lifetimes"):
        GBCM.fit(data, Settings(**QUICK))
    with pytest.warns(BcmdistWarning, match="event is not used: the gaussian likelihood does not read it"):
        GBCM.fit(data, Settings(**QUICK, task="regression"))


def test_exposure_that_is_not_used_is_said(make_data, rng):
    data = make_data("e.zarr", X=rng.standard_normal((60, 1)), y=rng.standard_normal(60), exposure=np.full(60, 2.0))
    with pytest.warns(BcmdistWarning, match="exposure is not used: the gaussian likelihood does not read it"):
        gbcm = GBCM.fit(data, Settings(**QUICK))
    with pytest.raises(InvalidOption, match="exposure: expected a likelihood that uses it, got gaussian"):
        gbcm.predict(np.zeros((1, 1)), exposure=2.0)


def test_few_whole_numbers_are_said_to_be_taken_for_measurements(make_data, rng):
    data = make_data("w.zarr", X=rng.standard_normal((60, 1)), y=rng.integers(1, 4, 60))
    with pytest.warns(BcmdistWarning, match=r"3 different whole numbers \(1, 2, 3\), taken for measurements"):
        GBCM.fit(data, Settings(**QUICK))


@pytest.mark.slow
def test_counts_of_a_file_have_their_exposure(rng, tmp_path):
    frame = pd.DataFrame({"a": rng.standard_normal(60), "area": rng.uniform(1, 3, 60)})
    frame["n"] = rng.poisson(frame.area)
    data = imported(frame, tmp_path / "c.zarr", y="n", companions={"exposure": "area"})
    gbcm = GBCM.fit(data, Settings(**QUICK, task="counts"), model=tmp_path / "m")
    new = frame[["area", "a"]]
    new.to_csv(tmp_path / "new.csv", index=False)
    assert predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--exposure", "area"]).exit_code == 0
    expected = gbcm.predict(new[["a"]], exposure=new.area)["observation_mean"]
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["observation_mean"], expected, rtol=1e-9)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "q.csv"])
    assert "with exposure 1; give --exposure NAME" in done.stderr


# --- What outsiders noticed ---


@pytest.mark.slow
def test_one_class_of_text_is_kept_with_what_it_is_not(table, tmp_path):
    data = imported(table.assign(soil="sand")[[*COLUMNS, "soil"]], tmp_path / "one.zarr", y="soil")
    with pytest.warns(BcmdistWarning, match="all targets in y equal 0"):
        gbcm = GBCM.fit(data, Settings(**QUICK), model=tmp_path / "one")
    assert gbcm.info()["classes"] == ["sand", "not sand"]
    assert set(gbcm.predict(table[list(COLUMNS)])["label"]) == {"sand"}
    gbcm.predict_zarr(data, tmp_path / "p.zarr")
    assert written(tmp_path / "p.zarr")["class"].tolist() == ["sand", "not sand"]
    assert GBCM.load(gbcm.url).score(data)["accuracy"] == 1.0


@pytest.fixture
def lifetimes(make_data, rng):
    """A model of censored lifetimes, and its arrays."""
    arrays = {"X": rng.standard_normal((60, 1)), "y": rng.exponential(size=60), "event": rng.integers(0, 2, 60)}
    return GBCM.fit(make_data("l.zarr", **arrays), Settings(**QUICK, task="lifetimes")), arrays


def test_lifetimes_of_which_nobody_knows_whether_they_ended_are_refused(lifetimes, make_data):
    gbcm, arrays = lifetimes
    data = make_data("new.zarr", X=arrays["X"], y=arrays["y"])
    for act in (gbcm.score, gbcm.partial_fit):
        with pytest.raises(InvalidData, match="expected an array event beside y, as in training, found none"):
            act(data)
    gbcm.predict_zarr(data, f"{data}.predictions")  # what is predicted has not ended


@pytest.mark.slow
def test_companions_that_come_or_go_are_said(make_data, rng):
    arrays = {"X": rng.standard_normal((60, 1)), "y": rng.poisson(2.0, 60)}
    counted = make_data("c.zarr", **arrays, exposure=np.full(60, 2.0))
    bare = make_data("b.zarr", **arrays)
    gbcm = GBCM.fit(counted, Settings(**QUICK, task="counts"))
    for act in (gbcm.score, lambda data: gbcm.predict_zarr(data, f"{data}.predictions")):
        with pytest.warns(BcmdistWarning, match="rows have no exposure, those of training had: 1 is taken"):
            act(bare)
    gbcm = GBCM.fit(bare, Settings(**QUICK, task="regression"))
    with pytest.warns(BcmdistWarning, match="exposure is not used: the gaussian likelihood does not read it"):
        gbcm.score(counted)


def test_rows_are_appended_by_name(table, tmp_path):
    frame = table[[*COLUMNS, "soil"]]
    data = imported(frame, tmp_path / "soils.zarr", y="soil")
    append_rows(data, frame[["east", "depth", "north"]].head(5), frame.soil.head(5))
    said = zarr.open_group(data)
    np.testing.assert_array_equal(said["X"][-5:], frame[list(COLUMNS)].head(5))
    np.testing.assert_array_equal(said["y"][-5:], said["y"][:5])
    for X, y, text in [
        (frame[["east", "depth"]], frame.soil, "'north' is not there"),
        (
            frame[list(COLUMNS)],
            frame.soil.replace("sand", "rock"),
            "classes among loam, sand, wet clay in y, got 'rock'",
        ),
        (frame[list(COLUMNS)].to_numpy(), np.full(ROWS, 7), "classes among loam, sand, wet clay in y, got 7"),
    ]:
        with pytest.raises(InvalidData, match=text):
            append_rows(data, X, y)
    append_rows(tmp_path / "new.zarr", frame[["north", "east"]], table.y)
    append_rows(tmp_path / "new.zarr", frame[["east", "north"]], table.y)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "new.zarr")["X"][:ROWS], frame[["north", "east"]])
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "new.zarr")["X"][ROWS:], frame[["north", "east"]])
    with pytest.raises(InvalidDtype, match="expected numbers in y, got texts"):
        append_rows(tmp_path / "new.zarr", frame[["east", "north"]], table.soil)


def test_columns_of_frames_that_are_not_used_are_named(regression, table):
    gbcm, _ = regression
    with pytest.warns(BcmdistWarning, match="X: 'age' not used: no input of the model has that name"):
        gbcm.predict(table[list(COLUMNS)].assign(age=1.0))


@pytest.mark.slow
def test_a_model_without_names_says_how_it_takes_columns(table, tmp_path):
    gbcm = GBCM.fit((table[list(COLUMNS)].to_numpy(), table.y.to_numpy()), Settings(**QUICK), model=tmp_path / "m")
    with pytest.warns(BcmdistWarning, match="X: the model knows no names, its inputs are taken to be 'north', 'depth'"):
        gbcm.predict(table[["north", "depth", "east"]])
    table[["north", "depth", "east"]].to_csv(tmp_path / "new.csv", index=False)
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", tmp_path / "p.csv"])
    assert "the model knows no names, its inputs are taken to be 'north', 'depth', 'east' in this order" in done.stderr


def test_integers_of_frames_do_not_merge(table):
    frame = table[list(COLUMNS)].assign(key=2**53 + 1 + np.arange(ROWS))
    with pytest.raises(InvalidData, match=r"X: 'key': expected whole numbers up to 2\*\*53"):
        GBCM.fit((frame, table.y), Settings(**QUICK))


def test_rows_of_frames_in_another_order_are_refused(table):
    with pytest.raises(
        InvalidData, match=r"the same rows in the same order, their labels differ; give y.loc\[X.index\]"
    ):
        GBCM.fit((table[list(COLUMNS)], table.y.sample(frac=1, random_state=0)), Settings(**QUICK))


def test_json_of_predict_names_what_is_not_used_of_a_data_set(regression, table, tmp_path):
    gbcm, _ = regression
    more = imported(table.assign(age=3.0).drop(columns=["site", "soil", "note"]), tmp_path / "more.zarr")
    done = predict([gbcm.url, more, "--out", tmp_path / "p.zarr"])
    assert json.loads(done.stdout)["unused"] == {"age": "no input of the model has that name"}


@pytest.mark.parametrize("name", ["id", "Weight", " EVENT "])
def test_whatever_looks_like_a_role_is_reported(name, table, tmp_path):
    table[list(COLUMNS)].assign(**{name: np.arange(ROWS)}, y=table.y).to_csv(tmp_path / "a.csv", index=False)
    role = name.strip().lower()
    with pytest.warns(BcmdistWarning, match=f"{name.strip()!r} is taken for an input; give --{role} {name.strip()}"):
        import_file(tmp_path / "a.csv", tmp_path / "a.zarr")


def test_endings_of_files_are_read_in_either_case_and_others_refused(regression, table, tmp_path):
    gbcm, _ = regression
    table[list(COLUMNS)].to_csv(tmp_path / "NEW.CSV", index=False)
    assert predict([gbcm.url, tmp_path / "NEW.CSV", "--out", tmp_path / "P.CSV"]).exit_code == 0
    assert len(pd.read_csv(tmp_path / "P.CSV")) == ROWS
    done = predict([gbcm.url, tmp_path / "NEW.CSV", "--out", tmp_path / "p.tsv"])
    assert done.exit_code == 1
    assert "InvalidOption: output: expected .csv, .parquet or .zarr, got" in done.stderr


def test_a_table_that_appears_meanwhile_stays(regression, table, tmp_path, monkeypatch):
    gbcm, _ = regression
    table[list(COLUMNS)].to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "p.csv"
    monkeypatch.setattr(files, "write_table", lambda *a, **how: (out.write_text("theirs"), write_table(*a, **how)))
    done = predict([gbcm.url, tmp_path / "new.csv", "--out", out])
    assert "DataExists: output: expected a new path, something has appeared at" in done.stderr
    assert out.read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.glob("*partial*")) == []


@pytest.mark.parametrize("name", ["X", "y"])
def test_large_integers_do_not_merge_on_their_way_into_a_store_or_a_stream(name, tmp_path):
    rows = {"X": np.zeros((3, 1), dtype=np.int64), "y": np.zeros(3, dtype=np.int64)}
    rows[name] = rows[name] + 2**53 + 1
    for write in (lambda X, y: append_rows(tmp_path / "a.zarr", X, y), encode):
        with pytest.raises(InvalidData, match=rf"{name}: expected whole numbers up to 2\*\*53.* at row 0"):
            write(**rows)
