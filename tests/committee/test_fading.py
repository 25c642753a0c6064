import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmdist.committee.fading import Weighting, chosen_fading
from bcmdist.errors import InvalidOption
from bcmdist.prediction.errors.drift import arrival_scores, arrivals, summary
from bcmdist.prediction.scoring.scores import class_scores
from bcmdist.storage.entry import Entry

POSITIONS = st.integers(0, 10_000)


@given(POSITIONS, POSITIONS, POSITIONS)
def test_weights_age_together(position, now, later):
    fading = Weighting("s", now, half_life=700.0)
    after = fading.at(later)
    assert after.position == max(now, later)
    # 2^a 2^b is 2^(a+b) to a few roundings of exponents up to 15
    assert fading.weight(position) * fading.aged(after) == pytest.approx(after.weight(position), rel=1e-13)


def test_a_row_counts_half_after_a_half_life():
    fading = Weighting("s", 1000, half_life=500.0)
    assert [fading.weight(t) for t in (1000, 500, 0, None)] == [1.0, 0.5, 0.25, 0.25]
    assert Weighting("s", 1000).weight(3) == 1.0
    assert Weighting("s", 1000).aged(Weighting("s", 2000)) == 1.0


def test_the_window_leaves_rows_behind_that_ended_before_it():
    fading = Weighting("s", 1000, window=300)
    assert [fading.expired(t) for t in (None, 0, 700, 701, 1000)] == [True, True, True, False, False]
    assert fading.weight(100) == 1.0
    assert not Weighting("s", 1000, half_life=1.0).expired(0)


@pytest.mark.parametrize(("name", "value"), [("half_life", 0.0), ("half_life", np.inf), ("window", -3)])
def test_fading_takes_positive_rows(name, value):
    with pytest.raises(InvalidOption, match="expected a positive number of rows"):
        Weighting("s", 0, **{name: value})


def test_a_model_fades_in_one_way():
    known = Weighting("a", 50, half_life=10.0)
    assert known == chosen_fading(known, "a", None, None) == chosen_fading(known, "a", 10.0, None)
    for source, half_life, window in (("b", None, None), ("a", 20.0, None), ("a", None, 5)):
        with pytest.raises(InvalidOption, match="as in the first ingestion into this model"):
            chosen_fading(known, source, half_life, window)
    assert chosen_fading(Weighting(), "b", None, 7) == Weighting("b", 0, None, 7)


def test_classes_are_noted_by_log_score_and_accuracy():
    p = np.array([[0.9, 0.1], [0.2, 0.8]])
    scores = class_scores(np.array([0.0, 0.0]), {"probability": p})
    assert arrival_scores(scores) == pytest.approx(((np.log(0.9) + np.log(0.2)) / 2, 0.5))


def test_a_change_of_the_log_score_is_told_in_standard_errors():
    print("seed 0")
    rng = np.random.default_rng(0)
    expected = [Entry(f"k{k}", "", 1, arrival=(rng.normal(), 0.95, 0.5)) for k in range(190)]
    worse = [Entry(f"w{k}", "", 1, arrival=(rng.normal() - 3.0, 0.6, 0.8)) for k in range(10)]
    assert summary(expected[:19]) is None
    calm, alarmed = summary(expected), summary([*expected, Entry("silent", "", 1), *worse])
    assert abs(calm["log_score_change"]) < 3.0
    assert (alarmed["arrivals"], alarmed["recent"]) == (200, 20)
    assert alarmed["log_score_change"] < -3.0
    assert alarmed["coverage95_recent"] == pytest.approx((0.95 + 0.6) / 2)
    assert arrivals([Entry("silent", "", 1)]).shape == (0,)
