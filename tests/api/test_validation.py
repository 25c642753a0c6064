"""Cross-validation: each fold is predicted exactly as by a committee that never had its rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.mixture import Mixture
from bcmdist.api.validation import folds as dividing
from bcmdist.api.validation.cross_validate import prepared
from bcmdist.api.validation.folds import Places, by_blocks, by_groups, by_rows, by_time
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidData, InvalidOption, MemoryLimit
from oracles import full_gp, pitc

GIVEN = {"learn": False, "kernel": "se", "query": 12, "mean": "zero", "task": "regression"}
HYPER = {"kernel.lengthscale": [0.8, 1.1], "likelihood.noise_variance": 0.05}
EXACT = {"rtol": 1e-10, "atol": 1e-10}  # the same sums in another order
NORMAL95 = 1.959963984540054
ROWS, EACH = 80, 20  # too few rows for an error distribution, which would change intervals


@pytest.fixture
def field(rng):
    """X (80, 2) and y (80,)."""
    X = rng.uniform(-2, 2, (ROWS, 2))
    y = 3.0 + 2.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(ROWS)
    assert X.shape == (ROWS, 2)
    return X, y


def left_out(gbcm, source, **how):
    """Folds, and the rows of each with their predictions."""
    validation = prepared(gbcm.snapshot, source, **{"folds": 4, "by": "blocks"} | how)
    return [(fold, validation.leave_out(fold, SerialRuntime()).judged) for fold in validation.folds]


def in_model_units(gbcm, X, y):
    scaling = gbcm.model.scaling
    return scaling.inputs(X), (y - scaling.y_mean) / scaling.y_scale


# --- Exactness ---


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
@pytest.mark.parametrize("by", ["blocks", "rows", "time:0"])
def test_a_fold_is_predicted_as_by_a_dense_process_of_the_kept_rows(partition, by, field, make_data):
    """With `chunks` the PITC process of the kept partitions; in cells of one partition the exact process."""
    path, each = make_data(X=field[0], y=field[1]), EACH if partition == "chunks" else ROWS
    gbcm = GBCM.fit(path, Settings(**GIVEN, set=HYPER, rows_per_expert=each, partition=partition))
    X, y = in_model_units(gbcm, *field)
    kernel, noise, points = gbcm.model.shared.kernel, HYPER["likelihood.noise_variance"], gbcm.model.query.points
    assert gbcm.model.shared.jitter == 0.0
    for fold, rows in left_out(gbcm, path, by=by):
        if partition == "chunks":
            cuts = len(fold.kept) * np.arange(1, round(len(fold.kept) / EACH)) // round(len(fold.kept) / EACH)
            blocks, targets = (np.split(values[fold.kept], cuts) for values in (X, y))
            mean, variance, _ = pitc(kernel, points, blocks, targets, noise, X[fold.left_out])
        else:
            seen = X[fold.kept], y[fold.kept]
            mean, covariance, _ = full_gp(kernel, lambda A: np.zeros((len(A), 1)), *seen, noise, X[fold.left_out])
            variance = np.diag(covariance)
        scaling = gbcm.model.scaling
        np.testing.assert_allclose(rows.columns["observation_mean"], mean * scaling.y_scale + scaling.y_mean, **EXACT)
        sd = np.sqrt(variance + noise) * scaling.y_scale
        width = rows.columns["upper95"] - rows.columns["lower95"]
        np.testing.assert_allclose(width, 2 * NORMAL95 * sd, **EXACT)
        np.testing.assert_array_equal(rows.number, fold.left_out)
        np.testing.assert_allclose(rows.y, field[1][fold.left_out], rtol=1e-14)


def targets_of(task, rng, X):
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    if task == "counts":
        return rng.poisson(np.exp(1.0 + f)).astype(float)
    return (f > 0).astype(float) if task == "classification" else f + 0.1 * rng.standard_normal(len(X))


@pytest.mark.parametrize(
    ("expert", "task", "likelihood"),
    [
        ("fitc", "regression", None),
        ("sor", "regression", None),
        ("rrgp_star", "regression", None),
        ("bcm", "counts", "poisson"),
        ("bcm", "classification", "probit"),
        ("fourier", "regression", None),
    ],
)
def test_leaving_out_whole_partitions_is_forgetting_them(expert, task, likelihood, field, rng, make_data):
    """Another path through our own code: messages are subtracted, not summed again."""
    if expert == "fourier":
        pytest.importorskip("finufft", reason="Fourier features: pip install 'bcmdist[fourier]'")
    X, y = field[0], targets_of(task, rng, field[0])
    path, group = make_data(X=X, y=y, rows_per_chunk=EACH), np.arange(ROWS) // EACH
    how = GIVEN | {"expert": expert, "task": task, "likelihood": likelihood, "rows_per_expert": EACH}
    if expert == "fourier":
        del how["query"]
    gbcm = GBCM.fit(path, Settings(partition="chunks", **how, set={"kernel.lengthscale": [0.8, 1.1]}))
    keys = {entry.key.rpartition("[")[2]: entry.key for entry in gbcm.ledger}
    column = "probability" if task == "classification" else "observation_mean"
    for fold, rows in left_out(gbcm, path, by=group):
        start = fold.left_out[0]
        without = gbcm.newest().forget([keys[f"{start}:{start + EACH}]"]])
        expected = without.predict(X[fold.left_out])[column]
        np.testing.assert_allclose(rows.columns[column], expected, rtol=1e-8, atol=1e-9)
        gbcm = GBCM.fit(path, Settings(partition="chunks", **how, set={"kernel.lengthscale": [0.8, 1.1]}))
        keys = {entry.key.rpartition("[")[2]: entry.key for entry in gbcm.ledger}


# --- Folds ---


def whole(found, rows):
    """Every row is left out once, and kept by all other folds."""
    assert np.array_equal(np.sort(np.concatenate([fold.left_out for fold in found])), np.arange(rows))
    for fold in found:
        assert np.array_equal(np.union1d(fold.left_out, fold.kept), np.arange(rows))
        assert not np.isin(fold.left_out, fold.kept).any()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("folds", [2, 3, 7])
def test_blocks_hold_neighbours_whatever_the_order_of_the_rows(folds, ordered, rng):
    X = rng.uniform(0, 1, (700, 2)) * [3.0, 1.0]
    X = X[np.argsort(X[:, 0])] if ordered else X
    places = Places(X, "")
    found = by_blocks(places, folds, 0)
    whole(found, len(X))
    sizes = [len(fold.left_out) for fold in found]
    assert max(sizes) - min(sizes) <= 2
    random = by_rows(len(X), folds, 0)
    whole(random, len(X))
    far, near = (np.mean([places.distances(f.left_out, f.kept).mean() for f in some]) for some in (found, random))
    assert far > 5 * near
    assert np.array_equal(by_blocks(places, folds, 0)[1].left_out, found[1].left_out)  # the same seed, the same blocks


def test_distances_are_those_to_the_nearest_kept_row(rng):
    for columns in (2, 11):
        X = rng.standard_normal((90, columns))
        expected = np.sqrt(((X[:30, None] - X[30:]) ** 2).sum(axis=2)).min(axis=1)
        np.testing.assert_allclose(Places(X, "").distances(np.arange(30), np.arange(30, 90)), expected, rtol=1e-12)


def test_groups_stay_together_and_fill_folds_evenly(rng):
    labels = rng.permutation(np.repeat(["oak", "ash", "elm", "yew", "fir"], [50, 20, 15, 10, 5]))
    found = by_groups(labels, 2, 0, "tree")
    whole(found, 100)
    assert [len(fold.left_out) for fold in found] == [50, 50]
    assert not set(labels[found[0].left_out]) & set(labels[found[1].left_out])
    assert {fold.description for fold in found} == {"oak", "ash, elm, fir, yew"}
    with pytest.raises(InvalidOption, match="expected at least 6 groups in tree, found 5; give fewer folds"):
        by_groups(labels, 6, 0, "tree")


def test_only_earlier_rows_are_kept_and_equal_times_stay_together(rng):
    time = rng.permutation(np.repeat(np.arange(12.0), 10))
    found = by_time(time, 3, "day")
    for fold in found:
        assert time[fold.kept].max() < time[fold.left_out].min()
    assert [len(fold.left_out) for fold in found] == [30, 30, 30]
    assert [len(fold.kept) for fold in found] == [30, 60, 90]
    assert found[0].description == "3 to 5"
    assert len(by_time(np.repeat([1.0, 2.0, 3.0], [500, 1, 1]), 2, "day")) == 2
    with pytest.raises(InvalidOption, match="expected at least 13 different times in day, found 12"):
        by_time(time, 12, "day")


# --- Results ---


def test_scores_of_folds_add_up_and_are_compared_with_the_mean(rng):
    X = rng.uniform(-2, 2, (300, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(300)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", **GIVEN | {"query": 40}, set=HYPER))
    found = gbcm.cross_validate(X, y, folds=4, by="rows")
    assert (found.by, found.method, found.rows, len(found.folds)) == ("rows", "committee", 300, 4)
    squares = sum(fold.rows * fold.scores["rmse"] ** 2 for fold in found.folds)
    assert found.scores["rmse"] == pytest.approx(np.sqrt(squares / 300), rel=1e-12)
    assert found.scores["rmse"] < 0.2 < found.mean["rmse"]
    assert found.mean["rmse"] == pytest.approx(y.std(), rel=0.05)
    assert {"mae", "mnlp", "crps"} <= found.mean.keys() & found.scores.keys()
    assert sum(point.rows for point in found.distances) == 300
    assert found.distances[0].high <= found.distances[-1].low
    blocks = gbcm.cross_validate(X, y, folds=4, coordinates=["0"])
    assert blocks.unit == "in X[0]"
    assert blocks.scores["rmse"] > found.scores["rmse"]
    assert not Path(gbcm.url, "scratch").exists()
    assert str(blocks).splitlines()[0].split()[:4] == ["fold", "rows", "distance", "rmse"]


@pytest.mark.parametrize(("task", "names"), [("classification", ("log_loss", "accuracy")), ("counts", ("deviance",))])
def test_classes_and_counts(task, names, rng, tmp_path):
    X = rng.uniform(-2, 2, (240, 2))
    y = targets_of(task, rng, X)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", learn=False, kernel="se", query=20, task=task))
    found = gbcm.cross_validate(X, y, folds=3)
    for name in names:
        better = found.scores[name] - found.mean[name]
        assert better > 0 if name == "accuracy" else better < 0
    pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")
    found.plot(tmp_path / "a.svg")
    assert "distance to the nearest kept row, in lengthscales" in (tmp_path / "a.svg").read_text()


@pytest.mark.slow
def test_zinc_along_the_meuse_is_predicted_worse_between_blocks(real_data):
    """155 rows: near neighbours make random folds easy."""
    stored = np.load(real_data("meuse"))
    X, y = stored["X"][:, :2].astype(float), np.log(stored["y"][:, 3].astype(float))
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", effort="quick", query=60))
    rows, blocks = (gbcm.cross_validate(X, y, folds=6, by=by, coordinates=("0", "1")) for by in ("rows", "blocks"))
    assert rows.scores["rmse"] < blocks.scores["rmse"] < 1.1 * blocks.mean["rmse"]
    assert rows.folds[0].distance < 0.5 * max(fold.distance for fold in blocks.folds)
    assert 0.88 < rows.scores["coverage95"] <= 1.0


@pytest.mark.slow
def test_a_sorted_file_gives_the_same_blocks(real_data):
    """Rows of the competition's small set, sorted by latitude: blocks by cells of local prediction."""
    stored = np.load(real_data("heaton_small"))
    some = np.random.default_rng(0).permutation(len(stored["X_train"]))[:800]
    some = some[np.lexsort(stored["X_train"][some].T)]
    X, y = stored["X_train"][some].astype(float), stored["y_train"][some].astype(float)
    gbcm = GBCM.fit(X, y, Settings(learn=False, kernel="matern12", query=60, partition="spatial", rows_per_expert=200))
    found = gbcm.cross_validate(X, y, folds=5, coordinates="0,1")
    mixed = np.random.default_rng(1).permutation(len(X))
    other = gbcm.cross_validate(X[mixed], y[mixed], folds=5, coordinates="0,1")
    assert (found.method, found.rows) == ("local", 800)
    assert other.scores["rmse"] == pytest.approx(found.scores["rmse"], rel=0.02)
    assert found.distances[-1].scores["rmse"] > found.distances[0].scores["rmse"]
    assert found.scores["crps"] < found.mean["crps"]


def test_distances_on_a_grid_are_equal_up_to_rounding(rng):
    X = np.stack(np.meshgrid(np.arange(15) / 99, np.arange(15) / 99), axis=-1).reshape(-1, 2)
    gbcm = GBCM.fit(X, rng.standard_normal(len(X)), Settings(partition="chunks", **GIVEN))
    found = gbcm.cross_validate(X, rng.standard_normal(len(X)), folds=9, by="rows", coordinates="0,1")
    near = [point for point in found.distances if point.distance < 1.01 / 99]
    assert len(near) == 1


# --- The command ---


@pytest.fixture
def table(rng, tmp_path):
    """A .csv file with two inputs, a category, a date, a site that is no input, and a target."""
    pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")
    X = rng.uniform(-2, 2, (120, 2))
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    frame["soil"] = rng.choice(["clay", "loam", "sand"], 120)
    frame["day"] = pd.date_range("2026-01-01", periods=120).strftime("%Y-%m-%dT00:00:00Z")
    frame["y"] = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.assign(site=rng.choice(["s1", "s2", "s3", "s4"], 120)).to_csv(tmp_path / "site.csv", index=False)
    visits = [f"2026-01-0{k}" for k in rng.integers(1, 5, 120)]
    frame.assign(visit=visits).to_csv(tmp_path / "visit.csv", index=False)
    how = "--no-learn --kernel se --query 20 --serial --quiet"
    done = CliRunner().invoke(cli, f"fit {tmp_path}/train.csv --model {tmp_path}/m {how}".split())
    assert done.exit_code == 0, done.stderr
    return tmp_path


def scored(folder, data, *words):
    how = [str(folder / "m"), str(folder / data), *words, "--serial", "--quiet", "--json"]
    return CliRunner().invoke(cli, ["score", *how], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "by", "described"),
    [
        (["--blocks", "3"], "blocks", {""}),
        (["--folds", "3", "--by", "group:soil"], "group:soil", {"soil=clay", "soil=loam", "soil=sand"}),
        (["--folds", "2", "--by", "time"], "time:day", None),
        (["--folds", "3", "--by", "time:visit"], "time:visit", {f"2026-01-0{k}" for k in "234"}),
        (["--folds", "4", "--by", "group:site"], "group:site", {"s1", "s2", "s3", "s4"}),
        (["--folds", "3", "--coordinates", "lon,lat"], "blocks", {""}),
    ],
)
def test_the_command_prints_folds_as_json(words, by, described, table):
    column = by.rpartition(":")[2]
    done = scored(table, f"{column if column in ('site', 'visit') else 'train'}.csv", *words)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["by"] == by
    assert found["method"] == "local"
    assert len(found["folds"]) == int(words[1])
    assert {"rmse", "mae", "mnlp", "crps", "coverage95", "mean", "distances", "unit", "kept"} <= found.keys()
    if described:
        assert {fold["description"].partition(" to ")[0] for fold in found["folds"]} == described
    if "--coordinates" in words:
        assert found["unit"] == "in lon, lat"


def test_a_column_that_the_file_lacks_is_named_with_what_there_is(table):
    done = scored(table, "site.csv", "--folds", "3", "--by", "group:region")
    assert done.exit_code == 1
    assert "expected a column 'region', found lon, lat, soil, day, y, site; correct the name" in done.stderr


def test_the_command_prints_a_table_and_draws(table):
    pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")
    out = table / "distance.png"
    words = ["score", f"{table}/m", f"{table}/train.csv", "--blocks", "3", "--serial", "--quiet", "--picture", str(out)]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.split()[-9:-6] == ["fold", "rows", "distance"] for line in lines)
    assert any(line.strip().startswith("mean ") for line in lines)
    assert out.read_bytes().startswith(b"\x89PNG")


# --- Refusals, before work is submitted ---


class Idle(SerialRuntime):
    """A runtime that must not be asked to work."""

    def sum(self, task, parts, *, label):
        raise AssertionError(f"{label} was submitted")


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"folds": 81}, "folds: expected at most one for each of 80 rows, got 81; give fewer"),
        ({"folds": 1}, "folds: expected a whole number of at least 2, got 1"),
        ({"by": "block"}, "by: expected blocks, rows, group:COLUMN, time or time:COLUMN, got 'block'"),
        ({"by": "group"}, "by: expected blocks, rows, group:COLUMN"),
        ({"by": "rows:1"}, "by: expected blocks, rows, group:COLUMN"),
        ({"by": "group:site"}, r"expected an input \(0, 1\) or an array of 80 values, found no 'site'"),
        ({"by": "time"}, "found no 'time'"),
        ({"coordinates": "lon"}, r"coordinates: expected inputs \(0, 1\), got 'lon'"),
        ({"coordinates": ["0", "5"]}, "got '5'"),
        ({"by": np.zeros(80)}, "expected at least 5 groups in by, found 1"),
        ({"method": "local"}, "expected a model fitted with --partition spatial"),
    ],
)
def test_what_cannot_be_divided_is_refused(how, text, field):
    gbcm = GBCM.fit(*field, Settings(partition="chunks", **GIVEN))
    with pytest.raises(InvalidOption, match=text):
        gbcm.cross_validate(*field, **how, runtime=Idle())


def test_labels_and_coinciding_rows(field):
    gbcm = GBCM.fit(*field, Settings(partition="chunks", **GIVEN))
    with pytest.raises(InvalidData, match=r"by: expected a label for each of 80 rows, got shape \(3,\)"):
        gbcm.cross_validate(*field, by=["a", "b", "c"], runtime=Idle())
    with pytest.raises(InvalidOption, match="expected at least 5 groups of rows at distinct places, found 1"):
        gbcm.cross_validate(np.zeros((80, 2)), field[1], runtime=Idle())


def test_rows_that_do_not_fit_in_memory_are_refused(field, monkeypatch):
    gbcm = GBCM.fit(*field, Settings(partition="chunks", **GIVEN))
    monkeypatch.setattr("bcmdist.runtime.memory.BASE_BYTES", 1e15)
    with pytest.raises(MemoryLimit, match=r"cross-validation of 80 rows: .*; take a sample of the rows"):
        gbcm.cross_validate(*field, runtime=Idle())


@pytest.mark.parametrize("expert", ["mnn", "rvm", "dgp"])
def test_experts_that_have_trained_on_the_rows_are_refused(expert, field):
    pytest.importorskip("bcmdist.methods.deep" if expert == "dgp" else "bcmdist", reason="a method that was deleted")
    gbcm = GBCM.fit(*field, Settings(partition="chunks", learn=False, expert=expert, task="regression"))
    with pytest.raises(InvalidOption, match=f"{expert} has trained its shared variables on the rows to be left out"):
        gbcm.cross_validate(*field, runtime=Idle())


def test_a_mixture_and_options_without_folds_are_refused(table):
    with pytest.raises(InvalidOption, match="cross-validate"):
        Mixture([GBCM.load(table / "m")]).cross_validate("nowhere.zarr")
    done = scored(table, "train.csv", "--by", "rows")
    assert done.exit_code == 1
    assert "--by: expected --folds with it, got none; give --folds K" in done.stderr
    assert dividing.parsed("time:day") == ("time", "day")
