"""Scores of predictions against observations, as sums over partitions.

`real_scores`, `class_scores` and `event_scores` turn the rows of a partition into additive totals (`Scores`).
`Scores.summary` turns the grand total into the figures that users read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scoringrules import interval_score

from bcmdist.data.observations import Observations
from bcmdist.linalg.arrays import FloatArray, FloatOrArray, IntArray
from bcmdist.prediction.scoring import excess_loss, pit
from bcmdist.prediction.scoring.ranking import comparable, ranked
from bcmdist.prediction.scoring.ranking import concordance_pairs as concordance_pairs

# Bins of the probability in the expected calibration error; the customary number.
CALIBRATION_BINS = 15


OUTPUTS = "outputs"  # name of the scores of each output


@dataclass(frozen=True)
class ByOutput:
    """Scores of each output by its name; `+` adds name by name."""

    scores: "dict[str, Scores]"

    def __add__(self, other: "ByOutput") -> "ByOutput":
        both = {name: self.scores[name] + other.scores[name] for name in self.scores.keys() & other.scores.keys()}
        return ByOutput(self.scores | other.scores | both)


@dataclass(frozen=True)
class Scores:
    """Additive totals by name; `+` adds name by name."""

    totals: dict[str, Any]
    """arrays and, for ranking scores, a `Comparable` or a `Ranked`"""

    def __add__(self, other: "Scores") -> "Scores":
        return Scores({name: value + other.totals[name] for name, value in self.totals.items()})

    def with_outputs(self, each: "dict[str, Scores]") -> "Scores":
        """These totals with those of each output, by its name."""
        return Scores(self.totals | {OUTPUTS: ByOutput(each)})

    def summary(self) -> dict:
        """Scores by name, for regression, for classes, or for counts and lifetimes.

        Regression: `rmse nmse mae mnlp crps coverage50 coverage80 coverage95 interval_score pit_distance pit`, and
        `weighted_rmse` for targets with known errors.
        Classes: `accuracy log_loss brier ece auc`.
        Counts and lifetimes: `mnlp deviance coverage50 coverage80 coverage95 concordance mae interval_score
        pit_distance pit`.

        All are numbers, except the list `pit` (`bcmdist.prediction.scoring.pit`). For more than 20,000 rows there is
        also `concordance_error`, a standard error, or `auc_error`, a bound (`bcmdist.prediction.scoring.ranking`). The
        `deviance` of counts is Poisson's for any likelihood; that of lifetimes is the model's own. Where rows observe
        several outputs, `outputs` has `rows` and the scores of each, by name; scores of all rows together mix their
        units.
        """
        marked = [("ranked", _class_summary), ("comparable", _event_summary)]
        summary = next((one for mark, one in marked if mark in self.totals), _regression_summary)
        found = summary(self.totals)
        if OUTPUTS in self.totals:
            each = self.totals[OUTPUTS].scores
            found[OUTPUTS] = {name: {"rows": int(one.totals["rows"]), **_numbers(one)} for name, one in each.items()}
        return found


def _numbers(scores: Scores) -> dict[str, Any]:
    """The scores that are numbers, by name."""
    return {name: value for name, value in scores.summary().items() if not isinstance(value, list)}


def real_scores(
    y: FloatArray,
    prediction: Mapping[str, FloatArray],
    log_density: FloatArray,
    where: pit.Places,
    *,
    train_mean: FloatOrArray,
    crps: FloatArray,
    reliability: FloatArray | None = None,
) -> "Scores":
    """Score totals for real or positive y (n,); all arguments in original units.

    `reliability` (n,) of targets with known errors (`Observations.reliability`): their squared errors count with its
    square, the inverse of their own variance, in `weighted_rmse`.
    """
    error = y - prediction["observation_mean"]
    weight = np.ones(len(y)) if reliability is None else reliability**2
    return Scores(
        {
            "rows": np.array(len(y)),
            "squared": (error**2).sum(),
            "weighted": weight @ error**2,
            "weight": weight.sum(),
            "spread": ((y - train_mean) ** 2).sum(),
            "absolute": np.abs(error).sum(),
            "negative_log": -log_density.sum(),
            "crps": crps.sum(),
            "interval": _interval_total(y, prediction),
            **_place_totals(where),
        }
    )


def _regression_summary(t: Mapping[str, Any]) -> dict[str, Any]:
    n = float(t["rows"])
    return {
        "rmse": float(np.sqrt(t["squared"] / n)),
        **({"weighted_rmse": float(np.sqrt(t["weighted"] / t["weight"]))} if t["weight"] < n else {}),
        "nmse": float(t["squared"] / t["spread"]) if t["spread"] > 0 else float("nan"),
        "mae": float(t["absolute"] / n),
        "mnlp": float(t["negative_log"] / n),
        "crps": float(t["crps"] / n),
        **_coverages(t),
        "interval_score": float(t["interval"] / n),
        **_place_summary(t),
    }


def _interval_total(y: FloatArray, prediction: Mapping[str, FloatArray]) -> np.float64:
    """Sum of the interval scores of the 95 % intervals (Gneiting & Raftery 2007, eq. 43)."""
    scores: FloatArray = interval_score(y, prediction["lower95"], prediction["upper95"], 0.05, backend="numpy")
    total: np.float64 = scores.sum()
    return total


def _place_totals(where: pit.Places) -> dict[str, Any]:
    covered = np.array([pit.covered(where, level).sum() for level in pit.LEVELS])
    return {"covered": covered, "pit": pit.histogram(where), **excess_loss.totals(excess_loss.of_numbers(where))}


def _coverages(t: Mapping[str, Any]) -> dict[str, float]:
    return {f"coverage{100 * p:.0f}": float(c / t["rows"]) for p, c in zip(pit.LEVELS, t["covered"], strict=True)}


def _place_summary(t: Mapping[str, Any]) -> dict[str, Any]:
    shares = t["pit"] / t["rows"]
    return {"pit_distance": pit.distance_to_uniform(shares), "pit": shares.tolist()}


def event_scores(
    obs: Observations,
    prediction: Mapping[str, FloatArray],
    log_density: FloatArray,
    deviance: FloatArray,
    where: pit.Places,
    *,
    number: IntArray | None = None,
) -> "Scores":
    """Score totals for counts or lifetimes; all arguments (n,) or observations of n rows.

    Pairs are ranked by rates per exposure and shares of trials, lifetimes by their medians, from which absolute errors
    are taken, too. `number`: row numbers in the data set, 0, 1, ... by default; they select a sample if there are many
    rows (`bcmdist.prediction.scoring.ranking`). The interval score needs the observed value, so there is none if rows
    are censored.
    """
    size = obs.exposure * np.maximum(obs.trials, 1.0)
    centre = prediction.get("median", prediction["observation_mean"])  # means of lifetimes may be of far tails
    number = np.arange(len(obs)) if number is None else number
    return Scores(
        {
            "rows": np.array(len(obs)),
            "negative_log": -log_density.sum(),
            "deviance": deviance.sum(),
            "absolute": np.abs(obs.y - centre).sum(),
            "comparable": comparable(obs.y / size, obs.event, centre / size, number),
            "censored": np.sum(~where.seen),
            "interval": _interval_total(obs.y, prediction),
            **_place_totals(where),
        }
    )


def _event_summary(t: Mapping[str, Any]) -> dict[str, Any]:
    n = float(t["rows"])
    concordance, error = t["comparable"].concordance(n)
    return {
        "mnlp": float(t["negative_log"] / n),
        "deviance": float(t["deviance"] / n),
        **_coverages(t),
        "concordance": concordance,
        **_error("concordance", error),
        "mae": float(t["absolute"] / n),
        "interval_score": float(t["interval"] / n) if not t["censored"] else float("nan"),
        **_place_summary(t),
    }


def class_scores(y: FloatArray, prediction: Mapping[str, FloatArray]) -> "Scores":
    """Score totals for class numbers y (n,), 0 to C - 1."""
    p = prediction["probability"]
    C = p.shape[1]
    number = y.astype(int)
    own = np.take_along_axis(p, number[:, None], axis=1)[:, 0]
    one_hot = np.arange(C) == number[:, None]
    # Calibration of the second class's probability for two classes, else of the largest probability.
    judged, happened = (p[:, 1], number == 1) if C == 2 else (p.max(axis=1), p.argmax(axis=1) == number)
    calibration = np.minimum((judged * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    return Scores(
        {
            "rows": np.array(len(y)),
            "right": np.array((p.argmax(axis=1) == number).sum()),
            "negative_log": -np.log(own).sum() if len(y) else np.array(0.0),
            "squared": ((p - one_hot) ** 2).sum() / (2.0 if C == 2 else 1.0),
            "bin_rows": np.bincount(calibration, minlength=CALIBRATION_BINS),
            "bin_probability": np.bincount(calibration, judged, CALIBRATION_BINS),
            "bin_positives": np.bincount(calibration, happened, CALIBRATION_BINS),
            "ranked": ranked(p, number),
            **excess_loss.totals(excess_loss.of_classes(p, number)),
        }
    )


def _class_summary(t: Mapping[str, Any]) -> dict[str, Any]:
    """Summary of class scores.

    `brier` is the mean of (p - y)^2 for two classes, and of its sum over classes for more. `auc` is for each class
    against the others, averaged over the classes that occur.
    """
    n = float(t["rows"])
    gaps = np.abs(t["bin_probability"] - t["bin_positives"]).sum()
    area, error = t["ranked"].area_under_curve()
    return {
        "accuracy": float(t["right"] / n),
        "log_loss": float(t["negative_log"] / n),
        "brier": float(t["squared"] / n),
        "ece": float(gaps / n),
        "auc": area,
        **_error("auc", error),
    }


def _error(name: str, error: float) -> dict[str, float]:
    """The error of a figure computed from a sample or bins; empty if it is exact."""
    return {f"{name}_error": error} if error > 0.0 else {}
