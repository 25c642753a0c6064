"""Predictions as a data frame, with the index of the rows."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
QUICK = {"kernel": "se", "query": 20, "learn": False}


@pytest.fixture
def frame(rng):
    index = pd.MultiIndex.from_product([["a", "b"], range(40)], names=["site", "visit"])
    return pd.DataFrame(rng.uniform(-1, 1, (80, 2)), index=index, columns=["east", "north"])


def test_numbers_keep_the_index(frame):
    made = GBCM.fit(frame, frame.east, Settings(**QUICK))
    some = frame[::-3]
    found, expected = made.predict_frame(some, quantiles=(0.9,)), made.predict(some, quantiles=(0.9,))
    assert found.index.equals(some.index)
    assert list(found.columns) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert some.join(found).notna().all(axis=None)  # joins by the index
    assert "term_mean" not in made.predict_frame(some, terms=True)


def test_probabilities_are_columns_by_class(frame):
    soil = np.where(frame.east > 0.3, "clay", np.where(frame.north > 0, "loam", "sand"))
    made = GBCM.fit(frame, soil, Settings(**QUICK))
    found, expected = made.predict_frame(frame), made.predict(frame)
    shares = found[["probability_clay", "probability_loam", "probability_sand"]]
    np.testing.assert_array_equal(shares, expected["probability"])
    np.testing.assert_array_equal(found.label, expected["label"])


def test_arrays_have_the_usual_index(frame):
    found = GBCM.fit(frame.to_numpy(), frame.east.to_numpy(), Settings(**QUICK)).predict_frame(frame.to_numpy()[:3])
    assert list(found.index) == [0, 1, 2]
