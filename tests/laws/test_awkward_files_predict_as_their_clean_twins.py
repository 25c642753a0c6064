"""Files as users have them: each gives the predictions of its clean twin, or an error that says what is wrong."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api.files import predicted
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data, read_schema
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.data.tables.importing import Split, import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.data.values import packing_of
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    DataNotFound,
    InvalidData,
    InvalidDtype,
    InvalidOption,
    UnsupportedTarget,
)

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 60
NAMES = np.array(["depth", "north", "east"])
QUICK = Settings(query=20, learn=False, kernel="se", rows_per_expert=30, task="regression")
PLACES = np.array([[0.3, -0.5, 1.0], [-1.0, 0.2, 0.1]])


@pytest.fixture(scope="module")
def clean():
    """A frame of three inputs and a target, and what a model fitted to it predicts."""
    rng = np.random.default_rng(20261122)
    X = np.round(rng.standard_normal((ROWS, 3)), 6)
    frame = pd.DataFrame(X, columns=["depth", "north", "east"])
    frame["y"] = np.round(np.sin(X[:, 0]) + 0.5 * X[:, 1], 6)
    assert frame.shape == (ROWS, 4)
    return frame, GBCM.fit((X, frame["y"].to_numpy()), QUICK).predict(PLACES)["mean"]


def predictions(data):
    """What a model fitted to a data set predicts at `PLACES`."""
    return GBCM.fit(data, QUICK).predict(PLACES)["mean"]


def csv(frame, path, **options):
    frame.to_csv(path, index=False, **options)


def text(frame, path, change):
    csv(frame, path)
    path.write_text(change(path.read_text()))


def cell(name, row, value):
    """A frame with one cell changed."""

    def changed(frame):
        frame = frame.astype({name: object})
        frame.loc[row, name] = value
        return frame

    return changed


def line(number, change):
    """A text with one line changed."""

    def changed(whole):
        lines = whole.splitlines()
        lines[number] = change(lines[number])
        return "\n".join(lines) + "\n"

    return changed


# Name: how the file is written from the clean frame, and roles of its columns; predictions are those of the twin.
SAME = {
    "byte order mark": ("a.csv", lambda f, p: csv(f, p, encoding="utf-8-sig"), {}),
    "blanks around names and cells": ("a.csv", lambda f, p: text(f, p, lambda t: t.replace(",", " , ")), {}),
    "line ends of another system": ("a.csv", lambda f, p: csv(f, p, lineterminator="\r\n"), {}),
    "blank lines at the end": ("a.csv", lambda f, p: text(f, p, lambda t: t + "\n\n\n"), {}),
    "quoted numbers": ("a.csv", lambda f, p: csv(f.astype(str), p, quoting=1), {}),
    "texts that are dropped": ("a.csv", lambda f, p: csv(f.assign(note="dry"), p), {"drop": ("note",)}),
    "texts that name rows": ("a.csv", lambda f, p: csv(f.assign(site=[f"s{k}" for k in f.index]), p), {"id": "site"}),
    "row names that are dropped": ("a.csv", lambda f, p: f.to_csv(p), {"drop": ("column0",)}),
    "target under another name": ("a.csv", lambda f, p: csv(f.rename(columns={"y": "yield"}), p), {"y": "yield"}),
    "target first": ("a.csv", lambda f, p: csv(f[["y", "depth", "north", "east"]], p), {}),
    "gaps that are dropped": ("a.csv", lambda f, p: csv(f.assign(g=f.y.where(f.y > 0)), p), {"drop": ("g",)}),
    "weight in its role": ("a.csv", lambda f, p: csv(f.assign(w=1.0), p), {"companions": {"weight": "w"}}),
    "semicolons": ("a.csv", lambda f, p: csv(f, p, sep=";", decimal=","), {}),
    "tabs": ("a.tsv", lambda f, p: csv(f, p, sep="\t"), {}),
    "bars, compressed": ("a.csv.gz", lambda f, p: csv(f, p, sep="|"), {}),
    "another separator": ("a.csv", lambda f, p: csv(f, p, sep="^"), {"separator": "^"}),
    "metadata of another kind": ("a.parquet", lambda f, p: _odd_metadata(f, p), {}),
    "categories of another library that are dropped": (
        *("a.parquet", lambda f, p: f.assign(c=pd.array(["u"] * ROWS, dtype=_dictionary())).to_parquet(p)),
        {"drop": ("c",)},
    ),
    "a directory of parquet": ("a.parquet", lambda f, p: _in_parts(f, p), {}),
    "directories that say a column": ("a.parquet", lambda f, p: _in_parts(f, p / "year=2026"), {"drop": ("year",)}),
    "gaps that are left out": (
        *("a.csv", lambda f, p: csv(pd.concat([f, f.assign(east=None)[:7]]), p), {"missing": "drop"}),
    ),
    "parquet": ("a.parquet", lambda f, p: f.to_parquet(p), {}),
    "nullable types": ("a.parquet", lambda f, p: f.convert_dtypes().to_parquet(p), {}),
    "named index": ("a.parquet", lambda f, p: f.rename_axis("time").to_parquet(p), {"drop": ("time",)}),
    "structured npy": ("a.npy", lambda f, p: np.save(p, f.to_records(index=False)), {}),
    "types of true and false": (
        *("a.parquet", lambda f, p: f.assign(t=pd.array([True] * ROWS, dtype="boolean")).to_parquet(p)),
        {"drop": ("t",)},
    ),
    "types of another library": (
        *("a.parquet", lambda f, p: f.assign(n=1).convert_dtypes(dtype_backend="pyarrow").to_parquet(p)),
        {"drop": ("n",)},
    ),
    "npz with names as bytes": (
        *("a.npz", lambda f, p: np.savez(p, X=f.to_numpy()[:, :3], y=f.y, feature_names=NAMES.astype("S"))),
        {},
    ),
    "npz with names": ("a.npz", lambda f, p: np.savez(p, X=f.to_numpy()[:, :3], y=f.y, feature_names=NAMES), {}),
}

# Name: how the file is written, roles of its columns, the error and what it says.
REFUSED = {
    "one text cell": (
        *("a.csv", lambda f, p: csv(cell("north", 17, "n/k")(f), p), {}, InvalidDtype),
        "texts in 'north' .1 of 60 cells, the first 'n/k' at row 17.*--drop north",
    ),
    "remarks": (
        *("a.csv", lambda f, p: csv(f.assign(note=[f"wet {k}" for k in f.index]), p), {}, InvalidDtype),
        "texts in 'note' .all cells, the first 'wet 0' at row 0; 60 different.*--category note.*--drop note",
    ),
    "too many levels": (
        *("a.csv", lambda f, p: csv(pd.concat([f.assign(note=f"{k}/" + f.index.astype(str)) for k in range(20)]), p)),
        *({"category": ("note",)}, InvalidData, "at most 1000 levels of the category 'note', got more"),
    ),
    "times of day": (
        *("a.parquet", lambda f, p: f.assign(at=pd.Timestamp("2026-01-02").time()).to_parquet(p), {}, InvalidDtype),
        "values of type time.* in 'at'",
    ),
    "lists in cells": (
        *("a.parquet", lambda f, p: f.assign(many=[[1, 2]] * ROWS).to_parquet(p), {}, InvalidDtype),
        "values of type .* in 'many'",
    ),
    "row names without a name": (
        *("a.csv", lambda f, p: f.to_csv(p), {}, InvalidDtype),
        "values without a name in the first line .row names, say. in 'column0'.*--drop column0",
    ),
    "two columns of one name": (
        *("a.csv", lambda f, p: csv(f.rename(columns={"east": "north"}), p), {}, InvalidData),
        "'north' is there twice",
    ),
    "no names": (
        *("a.csv", lambda f, p: csv(f, p, header=False), {}, InvalidData),
        "expected names of columns in its first line",
    ),
    "a line too long": (
        *("a.csv", lambda f, p: text(f, p, line(5, lambda s: s + ",1.0")), {}, InvalidData),
        "cannot be read",
    ),
    "every line too long": (
        *("a.csv", lambda f, p: text(f, p, lambda t: t.replace("\n", ",1\n").replace("y,1", "y", 1)), {}, InvalidData),
        "cannot be read",
    ),
    "a line too short": (
        *("a.csv", lambda f, p: text(f, p, line(5, lambda s: s.rpartition(",")[0])), {}, InvalidData),
        "each row of 'y', got nan at row 4",
    ),
    "a gap": (
        *("a.csv", lambda f, p: csv(cell("east", 3, None)(f), p), {}, InvalidData),
        "each row of 'east', got nan at row 3 .1 such",
    ),
    "an infinite number": (
        *("a.csv", lambda f, p: csv(cell("east", 3, np.inf)(f), p), {}, InvalidData),
        "each row of 'east', got inf at row 3",
    ),
    "thousands with commas": (
        *("a.csv", lambda f, p: csv(cell("east", 3, "1,250")(f), p), {}, InvalidDtype),
        "texts in 'east'.*'1,250' at row 3",
    ),
    "integers beyond float64": (
        *("a.csv", lambda f, p: csv(f.assign(key=2**60 + f.index), p), {}, InvalidData),
        "'key': expected whole numbers up to 2..53.*at row 0",
    ),
    "another alphabet": (
        *("a.csv", lambda f, p: csv(f.rename(columns={"east": "größe"}), p, encoding="latin-1"), {}, InvalidData),
        "cannot be read",
    ),
    "no target": (
        *("a.csv", lambda f, p: csv(f.drop(columns="y"), p), {}, DataNotFound),
        "expected a column 'y', found depth, north, east; name another with --y",
    ),
    "a target with a gap": (
        *("a.csv", lambda f, p: csv(cell("y", 9, None)(f), p), {}, InvalidData),
        "each row of 'y', got nan at row 9.*--no-target",
    ),
    "a target of numbers and texts": (
        *("a.csv", lambda f, p: csv(cell("y", 9, "low")(f), p), {}, InvalidDtype),
        "got both: texts in 'y' .1 of 60 cells, the first 'low' at row 9",
    ),
    "a target of dates": (
        *("a.parquet", lambda f, p: f.assign(y=pd.Timestamp("2026-01-02")).to_parquet(p), {}, InvalidDtype),
        "expected numbers or labels in 'y', got dates",
    ),
    "names of rows with a gap": (
        *("a.parquet", lambda f, p: cell("north", 2, None)(f).to_parquet(p), {"id": "north"}, InvalidData),
        "a name in each row of 'north', none at row 2",
    ),
    "true and false with a gap": (
        *("a.csv", lambda f, p: csv(f.assign(t=[True, None] * (ROWS // 2)), p), {}, InvalidData),
        "each row of 't', got nan at row 1",
    ),
    "digits that only some read": (
        *("a.csv", lambda f, p: csv(cell("east", 3, "1_250")(f), p), {}, InvalidDtype),
        "texts in 'east' .1 of 60 cells, the first '1_250' at row 3",
    ),
    "numbers as texts": (
        *("a.parquet", lambda f, p: f.astype({"east": str}).to_parquet(p), {}, InvalidDtype),
        "texts in 'east' .numbers, as texts",
    ),
    "very large integers": (
        *("a.csv", lambda f, p: csv(f.assign(key="9" * 30), p), {}, InvalidDtype),
        "whole numbers beyond 64 bits in 'key'",
    ),
    "only names": ("a.csv", lambda f, p: csv(f[:0], p), {}, InvalidData, "at least one row, found none; add rows"),
    "a directory": ("a.csv", lambda f, p: p.mkdir(), {}, DataNotFound, "a file, there is something else"),
    "a label of blanks": (
        *("a.csv", lambda f, p: csv(f.assign(y=["low", "  "] * (ROWS // 2)), p), {}, InvalidData),
        "a label in each row of 'y', none at row 1",
    ),
    "categories with a gap": (
        *("a.parquet", lambda f, p: f.assign(y=pd.Categorical(["u", None] * (ROWS // 2))).to_parquet(p), {}),
        *(InvalidData, "a label in each row of 'y', none at row 1"),
    ),
    "lists that name rows": (
        *("a.parquet", lambda f, p: f.assign(many=[[1, 2]] * ROWS).to_parquet(p), {"id": "many"}, InvalidDtype),
        "a number or text in each row of 'many', got others",
    ),
    "a name of rows with a blank": (
        *("a.csv", lambda f, p: csv(f.assign(**{"site id": f.index}), p), {"id": "site id"}, InvalidOption),
        "--id: expected a name .* without blanks, .* got 'site id'; rename",
    ),
    "a name of rows that leads away": ("a.csv", csv, {"id": ".."}, InvalidOption, "--id: .* got '..'; rename"),
    "a number as array": ("a.npz", lambda f, p: np.savez(p, X=3.0, y=f.y), {}, InvalidData, r"shape .N, D., got \(\)"),
    "no columns": (
        *("a.npz", lambda f, p: np.savez(p, X=np.ones((ROWS, 0)), y=f.y), {}, InvalidData),
        r"shape .N, D., got \(60, 0\)",
    ),
    "one weight for all": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=f.y, weight=2.0), {}, InvalidData),
        r"one value per row in weight, got shape \(\)",
    ),
    "inputs as weights": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=f.y), {"companions": {"weight": "X"}}, InvalidData),
        r"one value per row in X, got shape \(60, 4\)",
    ),
    "inputs to drop": ("a.npz", lambda f, p: np.savez(p, X=f, y=f.y), {"drop": ("X",)}, DataNotFound, "'X' to drop"),
    "an unknown array to drop": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=f.y), {"drop": ("q",)}, DataNotFound),
        "an array 'q' to drop, found y",
    ),
    "too few names": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=f.y, feature_names=NAMES), {}, InvalidData),
        r"4 texts in feature_names, .* got shape \(3,\)",
    ),
    "names twice": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=f.y, feature_names=np.array(list("abca"))), {}, InvalidData),
        "feature_names: .*'a' is there twice",
    ),
    "an empty label": (
        *("a.npz", lambda f, p: np.savez(p, X=f, y=np.array(["u", ""] * (ROWS // 2))), {}, InvalidData),
        "y: expected a label in each row, none at row 1",
    ),
    "numbers of more bits": (
        *("a.npz", lambda f, p: np.savez(p, X=f.to_numpy(dtype="g"), y=f.y), {}, InvalidDtype),
        "numbers in X, got dtype float128",
    ),
    "parts of other widths": (
        *("a.npz", lambda f, p: np.savez(p, X_train=f, X_test=f.iloc[:, :2], y_train=f.y, y_test=f.y), {}),
        *(InvalidData, "train and test with the same columns"),
    ),
    "rows of rows": (
        *("a.npy", lambda f, p: np.save(p, np.zeros((2, 2), [("a", "f8"), ("y", "f8")])), {}, InvalidData),
        "a 1-D structured array",
    ),
    "several values in a column": (
        *("a.npy", lambda f, p: np.save(p, np.zeros(3, [("a", "f8", (2,)), ("y", "f8")])), {}, InvalidDtype),
        r"values of shape \(2,\) in 'a'",
    ),
    "an unknown column to drop": ("a.csv", csv, {"drop": ("no",)}, DataNotFound, "expected a column 'no' to drop"),
    "a role twice": ("a.csv", csv, {"id": "y"}, InvalidOption, "one role for a column"),
}


def _dictionary():
    pa = pytest.importorskip("pyarrow")
    return pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))


def _in_parts(frame, path):
    """Two files, of which the second has its columns in another order."""
    path.mkdir(parents=True)
    frame[:20].to_parquet(path / "0.parquet", index=False)
    frame[20:][["y", *NAMES]].to_parquet(path / "1.parquet", index=False)


def _odd_metadata(frame, path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pandas(frame).replace_schema_metadata({b"pandas": b'{"nope": 1}'}), path)


def imported(tmp_path, clean, name, write, options):
    write(clean[0], tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of columns that are dropped
        return import_file(tmp_path / name, tmp_path / "a.zarr", roles=Roles(**options), rows_per_chunk=30)


@pytest.mark.parametrize("case", SAME)
def test_predictions_are_those_of_the_clean_twin(case, clean, tmp_path):
    figures = imported(tmp_path, clean, *SAME[case])
    assert figures["columns"] == ["depth", "north", "east"]
    np.testing.assert_allclose(predictions(tmp_path / "a.zarr"), clean[1], atol=1e-12)  # the same numbers


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case, clean, tmp_path):
    *how, error, text = REFUSED[case]
    with pytest.raises(error, match=text):
        imported(tmp_path, clean, *how)
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize(("name", "column"), [("weight", "weight"), ("event", "event")])
def test_a_column_that_only_looks_like_a_role_is_reported(name, column, clean, tmp_path):
    csv(clean[0].assign(**{column: np.arange(ROWS)}), tmp_path / "a.csv")
    with pytest.warns(BcmdistWarning, match=f"{column!r} is taken for an input; give --{name} {column}"):
        figures = import_file(tmp_path / "a.csv", tmp_path / "a.zarr")
    assert figures["columns"] == ["depth", "north", "east", column]
    assert figures["roles"] == {}


@pytest.mark.parametrize("write", ["a.csv", "a.parquet", "a.npz", "a.npy", "frame"])
def test_blanks_around_labels_do_not_count(write, clean, tmp_path):
    labels = np.array(["low ", "high", " low"] * (ROWS // 3))
    frame = clean[0].assign(y=labels)
    if write == "frame":
        assert GBCM.fit((frame[NAMES], frame["y"]), replace(QUICK, task=None)).info()["classes"] == ["high", "low"]
        return
    how = {
        "a.csv": csv,
        "a.parquet": lambda f, p: f.to_parquet(p),
        "a.npz": lambda f, p: np.savez(p, X=f[NAMES].to_numpy(), y=labels, feature_names=NAMES),
        "a.npy": lambda f, p: np.save(p, f.to_records(index=False, column_dtypes={"y": "S5"})),
    }
    figures = imported(tmp_path, (frame,), write, how[write], {})
    assert figures["classes"] == ["high", "low"]
    assert zarr.open_group(tmp_path / "a.zarr")["y"][:3].tolist() == [1, 0, 1]


@pytest.mark.parametrize("roles", [{"y": "z"}, {"drop": ["z"]}, {"inputs": ("z",)}, {}])
def test_errors_about_many_columns_are_short(roles, tmp_path):
    frame = pd.DataFrame([["x"] * 1000], columns=[f"c{k}" for k in range(1000)]).assign(y=1.0)
    csv(frame, tmp_path / "a.csv")
    with pytest.raises(BcmdistError, match=r" and [0-9]+ more") as refused:
        import_file(tmp_path / "a.csv", tmp_path / "a.zarr", y=roles.get("y", "y"), roles=Roles(**roles))
    assert len(str(refused.value)) < 1000 + len(str(tmp_path))


def test_blanks_around_names_of_rows_do_not_count(clean, tmp_path):
    """Numbers with blanks are the same numbers, with zeros in front the same texts."""
    frame = clean[0].assign(n=[f" {k} " for k in range(ROWS)], t=[f" 0{k} " for k in range(ROWS)])
    for name, expected in (("n", list(range(ROWS))), ("t", [f"0{k}" for k in range(ROWS)])):
        place = tmp_path / name
        place.mkdir()
        imported(place, (frame,), "a.csv", csv, {"id": name, "drop": ({"n", "t"} - {name}).pop()})
        assert zarr.open_group(place / "a.zarr")[name][:].tolist() == expected


def test_a_mask_is_numbers(clean, tmp_path):
    csv(clean[0].assign(test="yes"), tmp_path / "a.csv")
    with pytest.raises(InvalidDtype, match="numbers in the mask 'test', got texts"):
        import_file(tmp_path / "a.csv", tmp_path / "a.zarr", split=Split("train", mask="test"))


# --- Zarr as xarray writes it ---


@pytest.fixture(params=[2, 3])
def form(request):
    return request.param


def by_xarray(frame, path, form, encoding=None, columns=("depth", "north", "east")):
    """The frame as xarray stores it, with a coordinate of names."""
    xr = pytest.importorskip("xarray")
    X = ("row", "feature"), frame[list(columns)].to_numpy()
    data = xr.Dataset({"X": X, "y": ("row", frame["y"].to_numpy())}, coords={"feature": list(columns)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Zarr, about consolidated metadata and texts
        data.to_zarr(path, zarr_format=form, encoding=encoding or {})


def test_xarray_names_columns(clean, tmp_path, form):
    by_xarray(clean[0], tmp_path / "a.zarr", form)
    gbcm = GBCM.fit(tmp_path / "a.zarr", QUICK)
    assert gbcm.info()["columns"] == ["depth", "north", "east"]
    np.testing.assert_allclose(gbcm.predict(PLACES)["mean"], clean[1], atol=1e-12)


def test_packed_numbers_are_unpacked(clean, tmp_path, form):
    packed = {"dtype": "i4", "scale_factor": 1e-6, "add_offset": 1.0, "_FillValue": -(2**31)}
    by_xarray(clean[0], tmp_path / "a.zarr", form, {"X": packed, "y": packed})
    assert zarr.open_group(tmp_path / "a.zarr")["X"].dtype == np.int32
    np.testing.assert_allclose(predictions(tmp_path / "a.zarr"), clean[1], atol=1e-9)  # numbers of 6 digits, recovered


def test_fill_values_are_no_numbers(clean, tmp_path, form):
    frame = clean[0].copy()
    frame.loc[41, "north"] = np.nan
    by_xarray(frame, tmp_path / "a.zarr", form, {"X": {"dtype": "i4", "scale_factor": 1e-6, "_FillValue": -9999}})
    with pytest.raises(InvalidData, match=r"finite numbers .* in X, got nan at row 41, column 1 \('north'\)"):
        GBCM.fit(tmp_path / "a.zarr", QUICK)


def test_fill_values_of_real_numbers(clean, tmp_path, form):
    frame = clean[0].copy()
    frame.loc[7, "y"] = np.nan
    by_xarray(frame, tmp_path / "a.zarr", form, {"y": {"dtype": "f4", "_FillValue": -9999.0}})
    with pytest.raises(InvalidData, match=r"finite numbers .* in y, got nan at row 7 "):
        GBCM.fit(tmp_path / "a.zarr", QUICK)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"scale_factor": "large"}, "numbers in the attributes that say how it is packed, got .*large"),
        ({"scale_factor": 0.0}, "scale_factor not 0"),
        ({"add_offset": [1, 2]}, "add_offset"),
        ({"valid_range": [0]}, "valid_range"),
    ],
)
def test_packing_that_makes_no_sense_is_refused(attributes, text, clean, tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((4, 2)), attributes=attributes)
    group.create_array("y", data=np.ones(4))
    with pytest.raises(InvalidData, match=text):
        GBCM.fit(tmp_path / "a.zarr", QUICK)


def test_values_out_of_their_valid_range_are_no_numbers(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.arange(8.0).reshape(4, 2), attributes={"valid_min": 0.0, "valid_max": 6.0})
    group.create_array("y", data=np.ones(4))
    with pytest.raises(InvalidData, match=r"got nan at row 3, column 1"):
        GBCM.fit(tmp_path / "a.zarr", QUICK)


def test_unsigned_integers_in_signed_ones(tmp_path):
    stored = np.array([1, -1, -56], dtype=np.int8)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    array = group.create_array("a", data=stored, attributes={"_Unsigned": "true", "scale_factor": 0.5})
    np.testing.assert_array_equal(packing_of(array, "a").numbers(stored), [0.5, 127.5, 100.0])


def test_zeros_of_zarr_itself_are_numbers(tmp_path):
    """Zarr's own default fill value of format 2 is 0, which stands for nothing."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    for name, values in {"X": np.eye(4), "y": np.arange(4)}.items():
        group.create_array(
            name, data=values, fill_value=0, attributes={"_ARRAY_DIMENSIONS": ["row", "c"][: values.ndim]}
        )
    ((_, rows),) = read_all([Partition(open_data(tmp_path / "a.zarr"), 0, 4)])
    np.testing.assert_array_equal(rows.X, np.eye(4))


def test_large_labels_do_not_merge(tmp_path):
    """Hashes as labels: 2**53 and 2**53 + 1 are one float64."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=np.ones((4, 1)))
    group.create_array("y", data=2**53 + np.arange(4))
    with pytest.raises(InvalidData, match=r"y: expected whole numbers up to 2\*\*53.*got 9007199254740993 at row 1 "):
        GBCM.fit(tmp_path / "a.zarr", QUICK)
    with pytest.raises(InvalidData, match="y: expected whole numbers up to"):
        GBCM.fit((np.ones((4, 1)), 2**60 + np.arange(4)), QUICK)


def test_text_columns_named_by_a_damaged_coordinate(clean, tmp_path, form):
    by_xarray(clean[0], tmp_path / "a.zarr", form)
    place = tmp_path / "a.zarr/feature" / ("c/0" if form == 3 else "0")
    place.write_bytes(place.read_bytes()[:5])
    with pytest.raises(BcmdistError, match="feature"):
        GBCM.fit(tmp_path / "a.zarr", QUICK)


def test_json_of_the_command_names_what_is_not_used(clean, tmp_path):
    csv(clean[0].assign(note=[f"dry {k}" for k in range(ROWS)], w=2.0), tmp_path / "a.csv")
    given = ["import", str(tmp_path / "a.csv"), str(tmp_path / "a.zarr"), "--json"]
    done = CliRunner().invoke(cli, [*given, "--strict"])
    assert done.exit_code == 1
    assert "bcmdist: InvalidDtype" in done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = CliRunner().invoke(cli, [*given, "--drop", "note", "--weight", "w"])
    assert done.stderr == ""  # nothing is repeated that was asked for
    figures = json.loads(done.stdout)
    assert "warnings" not in figures
    assert figures["unused"] == {"note": "--drop"}
    assert figures["roles"] == {"weight": "w"}
    assert figures["columns"] == ["depth", "north", "east"]


def plain(path, *, form=3, **arrays):
    """A group of arrays with attributes, each (values, attributes)."""
    group = zarr.open_group(path, mode="w", zarr_format=form)
    for name, (values, attributes) in arrays.items():
        dims = (["row", "feature"] if name == "X" else ["row" if name != "feature" else "feature"])[: values.ndim]
        more = {"dimension_names": dims} if form == 3 else {}
        attributes = attributes | ({"_ARRAY_DIMENSIONS": dims} if form == 2 else {})
        group.create_array(name, data=values, attributes=attributes, **more)
    return path


def stored_rows(path):
    data = open_data(path, schema=read_schema(path))
    ((_, rows),) = read_all([Partition(data, 0, data.rows)])
    return rows


@pytest.mark.parametrize(
    ("stored", "kind", "fill"),
    [(np.array([1, -1, -56], "i1"), "true", -1), (np.array([1, 255, 200], "u1"), "false", 255)],
)
def test_fill_values_of_integers_of_another_sign(stored, kind, fill, tmp_path):
    """The attribute is of the stored type, -1, and the values are read as another one, 255."""
    attributes = {"_Unsigned": kind, "_FillValue": fill, "scale_factor": 0.5}
    plain(tmp_path / "a.zarr", X=(np.ones((3, 1)), {}), y=(stored, attributes))
    with pytest.raises(InvalidData, match="in y, got nan at row 1 "):
        stored_rows(tmp_path / "a.zarr")
    group = zarr.open_group(tmp_path / "a.zarr")
    group["y"].attrs["_FillValue"] = 1
    values = packing_of(group["y"], "y").numbers(stored)
    np.testing.assert_array_equal(values, [np.nan, *([127.5, 100.0] if kind == "true" else [-0.5, -28.0])])


def test_large_labels_with_a_fill_value_do_not_merge(tmp_path):
    plain(tmp_path / "a.zarr", X=(np.ones((4, 1)), {}), y=(2**53 + np.arange(4), {"_FillValue": -1}))
    with pytest.raises(InvalidData, match=r"y: expected whole numbers up to 2\*\*53.*got 9007199254740993 at row 1 "):
        stored_rows(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["X", "y"])
def test_dates_are_no_numbers(name, clean, tmp_path):
    """They count from the first day of each file."""
    arrays = {"X": np.ones((4, 1)), "y": np.arange(4.0)}
    dated = {n: (v, {"units": "days since 2026-01-01 00:00:00"} if n == name else {}) for n, v in arrays.items()}
    with pytest.raises(InvalidDtype, match=f"numbers in {name}, got dates .days since 2026-01-01"):
        GBCM.fit(plain(tmp_path / "a.zarr", **dated), QUICK)
    for attributes in ({"units": "days since diagnosis"}, {"units": "m"}):
        stored_rows(plain(tmp_path / "b.zarr", X=(arrays["X"], attributes), y=(arrays["y"], {})))


def test_names_of_columns_are_what_their_numbers_mean(tmp_path):
    """Not how they are packed, nor since when they count in this file."""

    def columns(attributes):
        feature = np.array([1, 2]), attributes
        plain(tmp_path / "a.zarr", X=(np.ones((4, 2)), {}), y=(np.arange(4.0), {}), feature=feature)
        return read_schema(tmp_path / "a.zarr").columns

    assert columns({}) == ("1", "2")
    assert columns({"scale_factor": 0.5}) == ("0.5", "1.0")
    assert columns({"units": "days since 2026-01-01"}) == ("1 days since 2026-01-01", "2 days since 2026-01-01")


@pytest.mark.parametrize(
    ("classes", "y", "error", "text"),
    [
        (["a", "a"], [0, 1], InvalidData, "a name of its own for each class, 'a' is there twice"),
        (["a", "b"], [0, 2], UnsupportedTarget, "the numbers 0 to 1 of its classes in y, got 2;"),
        (["a", "b"], [-1, 1], UnsupportedTarget, "the numbers 0 to 1 of its classes in y, got -1;"),
        (["a", "b"], [0, 1, 2], UnsupportedTarget, "the numbers 0 to 1 of its classes in y, got 2;"),
        (["a", "\ud800"], [0, 1], InvalidData, "names of Unicode text"),
    ],
)
def test_names_of_classes_that_make_no_sense_are_refused(classes, y, error, text, rng, tmp_path):
    y = np.resize(y, ROWS)
    plain(tmp_path / "a.zarr", X=(rng.standard_normal((ROWS, 1)), {}), y=(y, {"classes": classes}))
    with pytest.raises(error, match=text):
        GBCM.fit(tmp_path / "a.zarr", replace(QUICK, task="classification"))


@pytest.mark.parametrize(
    ("name", "said", "error", "text"),
    [
        ("mean", "mean", InvalidData, "other names of coordinates than those of predictions, got 'mean'; rename"),
        ("time", "../../time", BcmdistError, "expected the name of an array in this group, got '../../time'"),
    ],
)
def test_coordinates_that_make_no_sense_are_refused(name, said, error, text, clean, tmp_path):
    gbcm = GBCM.fit((clean[0][NAMES].to_numpy(), clean[0]["y"].to_numpy()), QUICK)
    given = {"X": (np.ones((4, 3)), {"coordinates": said}), name: (np.arange(4), {})}
    with pytest.raises(error, match=text):
        gbcm.predict_zarr(plain(tmp_path / "a.zarr", **given), tmp_path / "p.zarr")
    assert not (tmp_path / "p.zarr").exists()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"scale_factor": 0.5, "add_offset": 1.0}, [1.0, 1.5, 2.0, 2.5]),
        ({"units": "days since 2026-01-01"}, ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]),
        ({"units": "days since the flood"}, [0, 1, 2, 3]),
        ({"units": "days since 2026-13-41"}, [0, 1, 2, 3]),
    ],
)
def test_coordinates_in_tables_are_what_their_numbers_mean(attributes, expected, clean, tmp_path):
    gbcm = GBCM.fit((clean[0][NAMES].to_numpy(), clean[0]["y"].to_numpy()), QUICK, model=tmp_path / "m")
    given = {"X": (np.ones((4, 3)), {"coordinates": "time"}), "time": (np.arange(4), attributes)}
    plain(tmp_path / "a.zarr", **given)
    with predicted(gbcm.model, tmp_path / "a.zarr", tmp_path / "p.csv", roles={}) as found:
        gbcm.predict_zarr(found.data, found.predictions)
        found.finish()
    assert pd.read_csv(tmp_path / "p.csv")["time"].tolist() == expected
