"""Columns of tables as numbers: levels, dates, gaps, the same again for another table, and in any pieces."""

import json
import subprocess
import sys
import warnings
from datetime import UTC, datetime

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist.data.dataset import read_schema
from bcmdist.data.tables import tables
from bcmdist.data.tables.coding import Category, Coding, Date, Number, from_json, plain
from bcmdist.data.tables.column import CATEGORIES, DATES, Column, as_texts, of_numpy
from bcmdist.data.tables.dates import day_of, days, turns
from bcmdist.data.tables.importing import Split, import_file
from bcmdist.data.tables.look import Look
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistWarning, DataDamaged, InvalidData, InvalidDtype, InvalidOption

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")

ROWS = 90
CODING = Coding(
    (
        Number("age", 4.5),
        Category("soil", ("clay", "loam"), gaps=True),
        Date("day", cycles=("week", "year"), mean=20_000.0),
        Number("b"),
    ),
    missing="indicate",
    unseen="other",
    roles=(("y", "price"), ("weight", "w")),
)


def texts(*values, name="c"):
    return of_numpy(name, np.array(values))


# --- Codes ---


def test_the_same_coding_after_json():
    assert from_json(json.loads(json.dumps(CODING.to_json())), "here") == CODING
    assert from_json(plain(("a", "b")).to_json(), "here").inputs == ("a", "b")


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"kind": "number"}]},
        {"columns": [{"kind": "number", "name": 3}]},
        {"columns": [{"kind": "number", "name": "a", "mean": "4"}]},
        {"columns": [{"kind": "number", "name": "a", "mean": float("nan")}]},
        {"columns": [{"kind": "code", "name": "a"}]},
        {"columns": [{"kind": "date", "name": "a", "cycles": ["moon"]}]},
        {"missing": "perhaps"},
        {"unseen": None},
        {"roles": {"y": 1}},
        {"roles": None},
    ],
)
def test_what_cannot_be_a_coding_is_damage(change):
    with pytest.raises(DataDamaged, match="here: expected what its columns were coded by"):
        from_json(CODING.to_json() | change, "here")


def test_inputs_and_their_names_go_together():
    columns = {
        "age": of_numpy("age", np.array([1.0, np.nan])),
        "soil": texts("loam", "", name="soil"),
        "day": texts("1970-01-02", "", name="day"),
        "b": of_numpy("b", np.array([7, 8])),
    }
    X = CODING.numbers(columns, "here")
    named = dict(zip(CODING.inputs, X.T.tolist(), strict=True))
    week = 2 * np.pi / 7
    assert named["age"] == [1.0, 4.5]
    assert named["age missing"] == named["soil missing"] == named["day missing"] == [0.0, 1.0]
    assert (named["soil=clay"], named["soil=loam"]) == ([0.0, 0.0], [1.0, 0.0])
    assert named["day"] == [1.0, 20_000.0]
    np.testing.assert_allclose(named["day:week_sin"], [np.sin(week), 0.0], atol=1e-15)  # one day; a gap is the middle
    assert named["b"] == [7.0, 8.0]


def test_an_unseen_level_is_named_or_is_one_more():
    code = Category("soil", ("clay", "loam"))
    column = texts("loam", "peat", name="soil")
    with pytest.raises(InvalidData, match=r"here: .*'soil' \('clay', 'loam'\), got 'peat' at row 11 \(1 such rows\)"):
        code.numbers(column, "here", start=10)
    known, strange = code.numbers(column, "here", unseen="other")
    np.testing.assert_array_equal(known, [0, 1])
    # All levels are sqrt(2) apart, this one from the others, too; to rounding.
    np.testing.assert_allclose(((strange - np.eye(2)) ** 2).sum(axis=1), 2.0, rtol=1e-14)

    assert np.isnan(code.numbers(texts("", "loam"), "here")[0]).all()  # a gap, of which the code knows none


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_any_two_levels_are_equally_far_apart(count, gaps):
    """Also one that is not known, and a gap where gaps are indicated."""
    levels = tuple(f"{k:03}" for k in range(count))
    column = texts(*levels, "strange", *[""] * gaps, name="c")
    rows = Category("c", levels, gaps).numbers(column, "here", unseen="other")
    squares = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, 2.0 * (1.0 - np.eye(len(rows))), rtol=1e-13)  # sums of up to 301 squares


def test_inputs_of_a_category_are_one_group():
    soil, day = Category("soil", ("clay", "loam"), gaps=True), Date("day", cycles=("day",))
    coding = Coding((Number("age"), soil, day, Number("n", 1.0)))
    assert coding.inputs[1:4] == ("soil=clay", "soil=loam", "soil missing")
    assert coding.groups == (0, 1, 1, 1, 4, 5, 6, 7, 8)


def test_levels_do_not_depend_on_how_a_file_stores_them():
    """A column of whole numbers with a gap is real numbers in memory."""
    kinds = [np.array([3, 40]), np.array([3.0, 40.0]), np.array(["3", "40"]), np.array([" 3", "40 "])]
    for values in kinds:
        assert as_texts(of_numpy("zip", values)).tolist() == ["3", "40"]
    assert as_texts(of_numpy("zip", np.array([3.5, np.nan]))).tolist() == ["3.5", ""]


def test_a_number_that_is_none_is_named():
    with pytest.raises(InvalidDtype, match=r"texts in 'age' \(1 of 2 cells, the first 'n/k' at row 6\)"):
        Number("age").numbers(texts("3", "n/k", name="age"), "here", start=5)
    with pytest.raises(InvalidData, match="each row of 'age', got inf at row 6"):
        Number("age").numbers(of_numpy("age", np.array([1.0, np.inf])), "here", start=5)


# --- Dates ---


@settings(max_examples=50, deadline=None)
@given(st.datetimes(datetime(1700, 1, 1), datetime(2300, 1, 1)), st.sampled_from(["", "Z", "+05:30", "-0800"]))
def test_days_are_those_of_the_calendar(when, zone):
    """Against Python's own; a microsecond of 2300 is 1.2e-11 days, some ulps of 1.2e5 days."""
    text = when.isoformat() + zone
    own = datetime.fromisoformat(text)
    own = own if own.tzinfo else own.replace(tzinfo=UTC)
    assert day_of(text) == pytest.approx(own.timestamp() / 86_400, abs=3e-11)
    stamp = np.array([when], dtype="M8[us]")
    assert days(of_numpy("t", stamp), "here")[0] == pytest.approx(day_of(when.isoformat()), abs=3e-11)


@pytest.mark.parametrize(
    ("values", "form", "text"),
    [
        (
            ["2026-01-02", "soon"],
            "",
            "a date such as 2026-03-01.* in 't', got 'soon' at row 1; write it as in training",
        ),
        (["2026-01-02", "2026-02-30"], "", "got '2026-02-30' at row 1"),
        (["2026-01-02", "03.01.2026"], "", "got '03.01.2026' at row 1"),
        (["02.01.2026", "2026-01-03"], "%d.%m.%Y", "a date of the format '%d.%m.%Y' in 't', got '2026-01-03' at row 1"),
        (["2026-01-02T10:00", "2026-01-02T10:00Z"], "", "times without a zone in all rows of 't', got one with"),
    ],
)
def test_unreadable_and_mixed_dates_are_named(values, form, text):
    with pytest.raises(InvalidData, match=text):
        days(texts(*values, name="t"), "here", form=form, zoned=False)


def test_formats_of_ones_own():
    assert days(texts("02.01.1970", "", name="t"), "here", form="%d.%m.%Y").tolist()[0] == 1.0
    assert days(texts("02.01.1970 12:00 +0100"), "here", form="%d.%m.%Y %H:%M %z")[0] == pytest.approx(1.0 + 11 / 24)


def test_turns_come_round():
    when = np.array([0.25, 1.25, 7.25])
    np.testing.assert_allclose(turns(when, "day"), np.tile([1.0, 0.0], (3, 1)), atol=1e-14)  # some roundings
    np.testing.assert_allclose(turns(when, "week")[0], turns(when, "week")[2], atol=1e-14)
    np.testing.assert_array_equal(turns(np.array([np.nan]), "year"), [[0.0, 0.0]])


# --- What a column is ---


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (texts(*["clay", "loam"] * 5), Category("c", ("clay", "loam"))),
        (texts(*["clay", ""] * 5), Category("c", ("clay",))),
        (texts(*[f"r{k}" for k in range(10)]), None),
        (texts(*["clay"] * 9, "3"), None),
        (texts(*["2026-01-02"] * 3), Date("c")),
        (texts("2026-01-02T00:00Z", "2026-01-03T00:00+01:00"), Date("c", zoned=True)),
        (Column("c", np.array(["u", "v"], object), CATEGORIES), Category("c", ("u", "v"))),
        (Column("c", np.array(["1970-01-02"], "M8[D]"), DATES), Date("c")),
        (Column("c", np.array(["1970-01-02"], "M8[D]"), DATES, zone="Europe/Berlin"), Date("c", zoned=True)),
        (of_numpy("c", np.array([1.0, np.nan])), Number("c")),
        (of_numpy("c", np.array([np.nan, np.nan])), Number("c")),
        (Column("c", np.array([b"x"], object), "values of type bytes"), None),
    ],
)
def test_what_a_column_becomes(column, expected):
    look = Look("c")
    look.see(column)
    assert look.code("here") == expected


def test_mostly_dates_are_dates_with_an_error():
    look = Look("c")
    look.see(texts("2026-01-02", "2026-01-03"))
    look.see(texts("2026-01-05", "n/k"))
    with pytest.raises(InvalidData, match=r"each row of 'c', got 'n/k' at row 3 \(1 of 4 rows\)"):
        look.code("here")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["clay", "loam", "", "2026-01-02", "7"]), min_size=1, max_size=40), st.data())
def test_a_look_does_not_depend_on_pieces(values, data):
    whole, pieces = Look("c"), Look("c")
    whole.see(texts(*values))
    cut = data.draw(st.integers(0, len(values)))
    for some in filter(len, (values[:cut], values[cut:])):
        pieces.see(of_numpy("c", np.array(some, dtype="U10")))
    assert (whole.levels, whole.gaps, whole.odd, whole.undated) == (
        *(pieces.levels, pieces.gaps),
        *(pieces.odd, pieces.undated),
    )
    assert (whole.first_odd, whole.first_gap) == (pieces.first_odd, pieces.first_gap)


# --- Files ---


@pytest.fixture
def table(rng):
    """A frame with a category, dates, gaps, duplicates and numbers, sorted by its target."""
    frame = pd.DataFrame(
        {
            "soil": rng.choice(["clay", "loam", "sand"], ROWS),
            "code": rng.choice(["007", "010", "200"], ROWS),
            "day": (np.datetime64("2026-01-01") + rng.integers(0, 300, ROWS)).astype(str),
            "age": np.where(np.arange(ROWS) % 9 == 0, np.nan, rng.uniform(0, 9, ROWS).round(3)),
            "price": rng.standard_normal(ROWS).round(3),
        }
    )
    frame = pd.concat([frame, frame[:10]]).sort_values("price", ignore_index=True)
    assert frame.shape == (ROWS + 10, 5)
    return frame


def written(frame, path):
    frame.to_parquet(path, index=False) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


def rows_of(path):
    group = zarr.open_group(path, mode="r")
    return {name: group[name][...] for name in group.array_keys()}


def imported(file, out, split=None, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of zones and gaps, which tests of their own see
        return import_file(file, out, roles=Roles("price", **{"category": ("code",), **roles}), split=split)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_table_in_full(table, tmp_path, suffix):
    file = written(table, tmp_path / f"a.{suffix}")
    figures = imported(file, tmp_path / "a.zarr", missing="indicate", cyclic={"day": ("year",)})
    names = "soil=clay soil=loam soil=sand code=007 code=010 code=200 day day:year_sin day:year_cos age age missing"
    assert " ".join(figures["columns"]) == names
    assert figures["coded"]["soil"] == "category of 3 levels"
    found, X = rows_of(tmp_path / "a.zarr"), None
    X = dict(zip(figures["columns"], found["X"].T, strict=True))
    np.testing.assert_array_equal(X["soil=loam"], table.soil == "loam")
    np.testing.assert_array_equal(X["code=007"], table.code == "007")
    np.testing.assert_array_equal(X["day"], (pd.to_datetime(table.day) - pd.Timestamp(0)).dt.days)
    np.testing.assert_allclose(X["age"], table.age.fillna(table.age.mean()), rtol=1e-14)  # the order of a sum
    np.testing.assert_array_equal(X["age missing"], table.age.isna())
    np.testing.assert_array_equal(found["y"], table.price)
    schema = read_schema(tmp_path / "a.zarr")
    assert schema.coding.inputs == schema.columns
    assert dict(schema.coding.roles) == {"y": "price"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_pieces_change_nothing(table, tmp_path, suffix, rows, monkeypatch):
    """A reader that sees three rows at a time takes 007 for a number in some of them."""
    table = table.assign(mixed=np.where(table.index < 50, "12", "far"), half=table.index * 0.5)
    table.loc[:30, "half"] = table.index[:31].astype(float)
    file = written(table, tmp_path / f"a.{suffix}")
    how = {"missing": "drop", "category": ("code", "mixed")}
    imported(file, tmp_path / "a.zarr", **how)
    monkeypatch.setattr(tables.Named.pieces, "__defaults__", (rows,))
    imported(file, tmp_path / "b.zarr", **how)
    first, second = rows_of(tmp_path / "a.zarr"), rows_of(tmp_path / "b.zarr")
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_rows_with_gaps_are_left_out(table, tmp_path):
    roles = Roles("price", category=("code",), missing="drop")
    with pytest.warns(BcmdistWarning) as told:
        figures = import_file(written(table, tmp_path / "a.csv"), tmp_path / "a.zarr", roles=roles)
    said = " ".join(str(one.message) for one in told)
    assert "time zone" not in said  # dates without times
    assert f"{figures['dropped']} rows left out: they have gaps" in said
    kept = np.flatnonzero(table.age.notna())
    assert figures["dropped"] == len(table) - len(kept) > 0
    np.testing.assert_array_equal(rows_of(tmp_path / "a.zarr")["row"], kept)


def test_gaps_are_refused_with_the_ways_out(table, tmp_path):
    with pytest.raises(InvalidData, match=r"each row of 'age', got nan at row .*--missing drop or --missing indicate"):
        imported(written(table, tmp_path / "a.csv"), tmp_path / "a.zarr")
    table.loc[4, "soil"] = None
    with pytest.raises(InvalidData, match="each row of 'soil', got nan at row 4 "):
        imported(written(table.fillna({"age": 0.0}), tmp_path / "b.csv"), tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


def test_a_part_of_a_table_that_loses_rows(table, tmp_path):
    """The permutation is that of the rows of the file, with gaps or without."""
    file = written(table, tmp_path / "a.csv")
    order = np.random.default_rng(3).permutation(len(table))
    test = order[: int(0.3 * len(table))]
    for part, rows in (("test", test), ("train", order[len(test) :])):
        imported(file, tmp_path / f"{part}.zarr", split=Split(part, holdout=0.3, seed=3), missing="drop")
        kept = [row for row in rows if not np.isnan(table.age[row])]
        assert rows_of(tmp_path / f"{part}.zarr")["row"].tolist() == kept


def test_a_large_part_is_in_the_order_of_its_file(table, tmp_path, monkeypatch):
    monkeypatch.setattr("bcmdist.data.tables.importing.PERMUTED_BYTES", 0)
    imported(written(table, tmp_path / "a.csv"), tmp_path / "a.zarr", split=Split("test", holdout=0.3), missing="drop")
    order = np.random.default_rng(0).permutation(len(table))[: int(0.3 * len(table))]
    kept = sorted(row for row in order if not np.isnan(table.age[row]))
    assert rows_of(tmp_path / "a.zarr")["row"].tolist() == kept


@pytest.mark.parametrize(
    ("roles", "error", "text"),
    [
        ({"category": ("no",)}, Exception, "expected a column 'no', found .*; correct --category"),
        ({"cyclic": {"age": ("day",)}}, InvalidDtype, "numbers in 'age'"),
        ({"date": {"soil": "%d"}}, InvalidData, "a date of the format '%d' in each row of 'soil', got"),
        ({"category": ("price",)}, InvalidOption, "one role for a column, got 'price'"),
        ({"separator": "--"}, InvalidOption, "--separator: expected one character, got '--'"),
    ],
)
def test_roles_that_columns_cannot_have(roles, error, text, table, tmp_path):
    with pytest.raises(error, match=text):
        import_file(written(table, tmp_path / "a.csv"), tmp_path / "a.zarr", roles=Roles("price", **roles))
    assert not (tmp_path / "a.zarr").exists()


def test_arrays_have_no_roles_of_tables(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((3, 1)), y=np.ones(3))
    for roles in ({"category": ("a",)}, {"missing": "drop"}):
        with pytest.raises(InvalidOption, match="expected a table with --"):
            import_file(tmp_path / "a.npz", tmp_path / "a.zarr", roles=Roles(**roles))


def test_labels_in_pieces(table, tmp_path, monkeypatch):
    """Classes are those of all pieces, and a text beside numbers is named wherever it stands."""
    monkeypatch.setattr(tables.Named.pieces, "__defaults__", (7,))
    frame = pd.DataFrame({"a": np.arange(40.0), "y": ["no"] * 20 + ["yes"] * 20})
    figures = import_file(written(frame, tmp_path / "a.csv"), tmp_path / "a.zarr")
    assert figures["classes"] == ["no", "yes"]
    assert rows_of(tmp_path / "a.zarr")["y"].tolist() == [0] * 20 + [1] * 20
    frame = frame.assign(y=["1"] * 39 + ["low"])
    with pytest.raises(InvalidDtype, match=r"got both: texts in 'y' \(1 of 40 cells, the first 'low' at row 39\)"):
        import_file(written(frame, tmp_path / "b.csv"), tmp_path / "b.zarr")


def test_dates_of_parquet(tmp_path):
    frame = pd.DataFrame({"at": pd.date_range("2026-01-01", periods=4, freq="6h", tz="Europe/Berlin"), "y": 1.0})
    for unit in ("ms", "us", "ns"):
        frame.astype({"at": f"datetime64[{unit}, Europe/Berlin]"}).to_parquet(tmp_path / f"{unit}.parquet")
        figures = import_file(tmp_path / f"{unit}.parquet", tmp_path / f"{unit}.zarr")
        assert figures["coded"] == {"at": "UTC days of times with a zone"}
        first = 20_453 + 23 / 24  # the 31st of December 2025, 23:00 UTC
        np.testing.assert_allclose(rows_of(tmp_path / f"{unit}.zarr")["X"][:, 0], first + np.arange(4) / 4, atol=4e-12)


PEAK = """
import sys
from bcmdist.data.tables.importing import import_file
import_file(sys.argv[1], sys.argv[2], rows_per_chunk=16384)
status = open("/proc/self/status").read()  # getrusage tells the peak of who has forked it, too
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read from /proc")
def test_memory_does_not_grow_with_rows(tmp_path, rng):
    """Peak KiB of an import: 900,000 rows more are 79 MB of numbers, of which a third would be too much."""
    peaks = []
    for rows in (300_000, 1_200_000):
        file, columns = tmp_path / f"{rows}.parquet", {f"c{k}": rng.standard_normal(rows) for k in range(10)}
        pd.DataFrame(columns | {"y": columns["c0"]}).to_parquet(file)
        command = [sys.executable, "-c", PEAK, str(file), str(tmp_path / f"{rows}.zarr")]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] - peaks[0] < 26_000
