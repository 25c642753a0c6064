"""Verdicts: right predictions are trusted, and each way of being wrong is called by its name."""

import numpy as np
import pytest
from scipy.stats import norm, poisson

from bcmdist.prediction.scoring.pit import Places, histogram
from bcmdist.prediction.scoring.scores import Scores, class_scores
from bcmdist.prediction.scoring.verdicts import calibration_in_words, of_coverages, verdict

N = 4000


def of_places(low, high=None):
    where = Places(low, low if high is None else high, np.ones(len(low), bool))
    return verdict(Scores({"rows": np.array(len(low)), "pit": histogram(where)}))


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda z: z, "intervals can be trusted"),
        (lambda z: 0.6 * z, "under-confident: intervals are wider"),
        (lambda z: 1.6 * z, "over-confident: intervals are too narrow"),
        (lambda z: z + 0.25, "intervals are as wide as they should be"),
        (lambda z: np.where(np.abs(z) < 1.2, 0.6, 1.8) * z, "errors have heavier tails"),
        (lambda z: 1.25 * np.sign(z) * np.minimum(np.abs(z), 1.2) ** 0.5, "errors have lighter tails"),
    ],
)
def test_numbers(draw, said, rng):
    assert of_places(norm.cdf(draw(rng.standard_normal(N)))).startswith(said)


def test_a_lean_is_told(rng):
    assert "predictions lean: 69% of observations lie above" in of_places(norm.cdf(rng.standard_normal(N) + 0.5))
    assert "lean" not in of_places(rng.random(N))


def test_small_counts_that_are_predicted_right_are_trusted(rng):
    """Their intervals hold far more than was asked for, since limits belong to them."""
    y = rng.poisson(0.7, N)
    assert of_places(poisson.cdf(y - 1, 0.7), poisson.cdf(y, 0.7)).startswith("intervals can be trusted")


def test_coverages_are_judged_at_both_ends():
    assert of_coverages(0.52, 0.955) == "intervals can be trusted"
    assert of_coverages(0.62, 0.955).startswith("under-confident in the middle")
    assert of_coverages(0.62, 0.99).startswith("under-confident: intervals are wider")
    assert of_coverages(0.48, 0.88).startswith("over-confident: intervals are too narrow")
    assert of_coverages(0.62, 0.88) == "errors have heavier tails than was predicted"


def test_what_chance_does_is_not_told(rng):
    assert of_places(norm.cdf(0.8 * rng.standard_normal(30))).startswith("intervals can be trusted")


@pytest.mark.parametrize(
    ("slope", "said"), [(1.0, "probabilities can be trusted"), (2.5, "under-confident"), (0.4, "over-confident")]
)
@pytest.mark.parametrize("classes", [2, 3])
def test_classes(slope, said, classes, rng):
    """True log odds are `slope` times those that were predicted."""
    logits = 1.2 * rng.standard_normal((N, classes))
    predicted, true = (_softmax(s * logits) for s in (1.0, slope))
    y = (true.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
    told = verdict(class_scores(y, {"probability": predicted}))
    assert said in told  # after the remark that the most over-confident ones are worse than the shares of the classes
    assert ("it came true in" in told) == (slope != 1.0)


def _softmax(logits):
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True)


def test_what_is_no_better_than_the_mean_is_not_called_good(rng):
    """Intervals of the right width around predictions that are useless."""
    y, places = rng.standard_normal(N), rng.random(N)
    totals = {"rows": np.array(N), "pit": histogram(Places(places, places, np.ones(N, bool)))}
    squares = {"squared": np.sum(y**2), "spread": np.sum(y**2)}
    found = verdict(Scores(totals | squares))
    assert found.startswith("no better than the mean of the training targets: squared errors are 100% of those of the")
    assert "trusted" not in found
    assert verdict(Scores(totals | squares | {"squared": 0.5 * np.sum(y**2)})).startswith("intervals can be trusted")


def test_trust_is_withheld_where_another_model_is_far_better(rng):
    places = rng.random(N)
    scores = Scores({"rows": np.array(N), "pit": histogram(Places(places, places, np.ones(N, bool)))})
    assert verdict(scores, None, "trees are better").startswith("trees are better; intervals can be trusted")
    assert verdict(scores, None, "trees are better", far=True).startswith(
        "trees are better; intervals are calibrated: "
    )
    assert verdict(scores, None, None, far=False).startswith("intervals can be trusted")
    assert calibration_in_words(scores).startswith("intervals are calibrated: ")


def test_probabilities_that_are_the_shares_of_the_classes_are_not_called_good(rng):
    y, p = (rng.random(N) < 0.3) * 1.0, np.full(N, 0.3)
    found = verdict(class_scores(y, {"probability": np.column_stack([1.0 - p, p])}))
    assert found.startswith("no better than the shares of the classes: the log loss is 0.6")
    assert "trusted" not in found
