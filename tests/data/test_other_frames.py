"""Tables of other libraries than pandas: columns of any kind, by name, as the same frame of pandas."""

import numpy as np
import pandas as pd
import pytest

from bcmdist import GBCM, GBCMClassifier, GBCMRegressor, Settings
from bcmdist.data.tables.frames import framed
from bcmdist.errors import InvalidData, MissingExtra

pa = pytest.importorskip("pyarrow", reason="tables of Arrow: pip install 'bcmdist[tables]'")
pytest.importorskip("narwhals", reason="tables of Arrow: pip install 'bcmdist[tables]'")

QUICK = {"kernel": "se", "query": 20, "options": {"learn": False}}


@pytest.fixture
def frame(rng):
    """Prices by area, district and day, sorted by the district."""
    district = np.sort(rng.choice(["Hafen", "Nord", "Sued"], 150))
    area = rng.uniform(20.0, 140.0, 150)
    found = pd.DataFrame(
        {
            "area": area,
            "floor": rng.integers(0, 7, 150),
            "district": pd.Categorical(district),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, 150), unit="D"),
        }
    )
    price = 9.0 * area + 100.0 * (district == "Nord") + rng.standard_normal(150)
    return found, pd.Series(price, name="price")


def test_columns_of_any_kind_are_those_of_pandas(frame):
    X, y = frame
    ours, theirs = GBCMRegressor(**QUICK).fit(X, y), GBCMRegressor(**QUICK).fit(pa.table(X), y)
    assert list(theirs.feature_names_in_) == list(X.columns)
    np.testing.assert_array_equal(theirs.predict(pa.table(X)), ours.predict(X))
    more = GBCMRegressor(**QUICK).partial_fit(pa.table(X), y).partial_fit(pa.table(X[:40]), y[:40] + 1.0)
    assert more.gbcm_.info()["rows"] == 190


def test_the_facade_takes_them(frame):
    X, y = frame
    settings = Settings(kernel="se", query=20, learn=False)
    ours, theirs = GBCM.fit((X, y), settings), GBCM.fit((pa.table(X), y), settings)
    assert theirs.info()["columns"] == ours.info()["columns"]
    turned = pa.table(X[list(X.columns[::-1])])
    np.testing.assert_array_equal(theirs.predict(turned)["mean"], ours.predict(X)["mean"])
    assert theirs.score((pa.table(X), y)) == ours.score((X, y))
    with pytest.raises(InvalidData, match=r"'district=Hafen', .* are not there"):
        theirs.predict(pa.table(X).drop_columns(["district"]))


def test_numbers_keep_their_names(frame):
    X, y = frame
    numbers = pa.table(X[["area", "floor"]])
    known = GBCMClassifier(**QUICK).fit(numbers, np.where(y > y.median(), "dear", "cheap"))
    assert list(known.feature_names_in_) == ["area", "floor"]
    np.testing.assert_array_equal(known.predict(numbers), known.predict(X[["area", "floor"]]))


def test_what_is_no_table_stays_as_it_is(rng):
    class Schemed:
        schema = None

    for X in (rng.standard_normal((3, 2)), [[1.0]], pd.DataFrame({"a": [1.0]}), Schemed()):
        assert framed(X) is X


def test_without_what_reads_them_it_is_said_what_to_install(frame, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "narwhals", None)
    with pytest.raises(MissingExtra, match=r"to read a table of pyarrow.*pip install 'bcmdist\[tables\]'"):
        framed(pa.table(frame[0]))
