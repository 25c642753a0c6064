"""Data frames of polars: texts, categories, dates and gaps are those of the same frame of pandas."""

from datetime import date, timedelta

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.7", reason="estimators: pip install 'bcmdist[interop]'")

from bcmdist import GBCM, GBCMClassifier, GBCMRegressor, Settings
from bcmdist.errors import BcmdistWarning

pl = pytest.importorskip("polars", reason="pip install 'bcmdist[interop]'")

QUICK = {"kernel": "se", "query": 20, "options": {"learn": False}}


@pytest.fixture
def frame():
    rng = np.random.default_rng(3)
    district = np.sort(rng.choice(["Hafen", "Nord", "Süd"], 150))
    area = rng.uniform(20.0, 140.0, 150)
    days = [date(2026, 1, 1) + timedelta(days=int(k)) for k in rng.integers(0, 300, 150)]
    X = pl.DataFrame(
        {"area": area, "district": district, "floor": pl.Series(district).cast(pl.Categorical), "day": days}
    )
    return X, pl.Series("price", 9.0 * area + 100.0 * (district == "Nord") + rng.standard_normal(150))


def test_estimators_take_them(frame):
    X, y = frame
    ours, theirs = GBCMRegressor(**QUICK).fit(X.to_pandas(), y.to_pandas()), GBCMRegressor(**QUICK).fit(X, y)
    assert list(theirs.feature_names_in_) == X.columns
    np.testing.assert_array_equal(theirs.predict(X), ours.predict(X.to_pandas()))
    np.testing.assert_array_equal(
        theirs.predict(X, X_std={"area": 5.0}), ours.predict(X.to_pandas(), X_std={"area": 5.0})
    )
    labels = pl.Series(np.where(y > y.median(), "dear", "cheap"))
    known = GBCMClassifier(**QUICK).fit(X, labels)
    assert list(known.classes_) == ["cheap", "dear"]
    assert known.score(X, labels) > 0.9


def test_the_facade_takes_them(frame):
    X, y = frame
    settings = Settings(kernel="se", query=20, learn=False)
    ours, theirs = GBCM.fit((X.to_pandas(), y.to_pandas()), settings), GBCM.fit((X, y), settings)
    assert theirs.info()["columns"] == ours.info()["columns"]
    turned = X.select(X.columns[::-1])
    np.testing.assert_array_equal(theirs.predict(turned)["mean"], ours.predict(X.to_pandas())["mean"])


def test_gaps_are_filled_or_named(frame):
    X, y = frame
    settings = Settings(kernel="se", query=20, learn=False)
    gap = X.with_columns(pl.when(pl.int_range(pl.len()) == 7).then(None).otherwise(pl.col("area")).alias("area"))
    with pytest.warns(BcmdistWarning, match=r"gaps are filled .* in 'area' \(1\)"):
        assert "area missing" in GBCM.fit((gap, y), settings).info()["columns"]
    with pytest.raises(ValueError, match=r"'area'.*row 7|row 7.*'area'"):
        GBCM.fit((X, y), settings).predict(gap)  # training had none
