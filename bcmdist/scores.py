"""Scores of predictions against observations, as sums over partitions.

`regression_scores` and `class_scores` turn a partition into a `Scores` of additive totals;
`Scores.summary` turns the grand total into the figures users read.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, xlogy

# Width-1/15 bins of P(y = 1) for the expected calibration error; the customary number.
CALIBRATION_BINS = 15
# Bins of the log odds for the area under the ROC curve, so that rare classes are resolved too: 0.002
# wide between odds of exp(-20) and exp(20). Ties inside a bin count half.
RANKING_BINS = 20_000
RANKING_LOG_ODDS = 20.0


@dataclass(frozen=True)
class Scores:
    """Additive totals by name; `+` adds name by name."""

    totals: dict[str, np.ndarray]

    def __add__(self, other: "Scores") -> "Scores":
        return Scores({name: value + other.totals[name] for name, value in self.totals.items()})

    def summary(self) -> dict[str, float]:
        """The figures: regression or class scores, whichever the totals are of."""
        return _class_summary(self.totals) if "positives" in self.totals else _regression_summary(self.totals)


def regression_scores(y, prediction, *, train_mean):
    """Totals of Gaussian predictions of y (n,), all in original units."""
    mean, variance = prediction["observation_mean"], prediction["observation_variance"]
    sd = np.sqrt(variance)
    error = y - mean
    z = error / sd
    low, high = prediction["lower95"], prediction["upper95"]
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return Scores(
        {
            "rows": np.array(len(y)),
            "squared": (error**2).sum(),
            "spread": ((y - train_mean) ** 2).sum(),
            "absolute": np.abs(error).sum(),
            "negative_log": 0.5 * (z**2 + np.log(2.0 * np.pi * variance)).sum(),
            "crps": (sd * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))).sum(),
            "covered": np.array(((y >= low) & (y <= high)).sum()),
            "interval": (high - low + (2.0 / 0.05) * outside).sum(),
        }
    )


def _regression_summary(t):
    n = float(t["rows"])
    return {
        "rmse": float(np.sqrt(t["squared"] / n)),
        "nmse": float(t["squared"] / t["spread"]) if t["spread"] > 0 else float("nan"),
        "mae": float(t["absolute"] / n),
        "mnlp": float(t["negative_log"] / n),
        "crps": float(t["crps"] / n),
        "coverage95": float(t["covered"] / n),
        "interval_score": float(t["interval"] / n),
    }


def class_scores(y, prediction):
    """Totals of two-class predictions of y (n,) in {0, 1}."""
    no, p = prediction["probability"].T
    calibration = np.minimum((p * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    ranking = _ranking_bins(p, no)
    return Scores(
        {
            "rows": np.array(len(y)),
            "positives": y.sum(),
            "right": np.array((prediction["label"] == y).sum()),
            "negative_log": -(xlogy(y, p) + xlogy(1.0 - y, no)).sum(),
            "squared": ((p - y) ** 2).sum(),
            "bin_rows": np.bincount(calibration, minlength=CALIBRATION_BINS),
            "bin_probability": np.bincount(calibration, p, CALIBRATION_BINS),
            "bin_positives": np.bincount(calibration, y, CALIBRATION_BINS),
            "rank_rows": np.bincount(ranking, minlength=RANKING_BINS),
            "rank_positives": np.bincount(ranking, y, RANKING_BINS),
        }
    )


def _ranking_bins(p, no):
    with np.errstate(divide="ignore"):
        log_odds = np.log(p) - np.log(no)
    share = (log_odds.clip(-RANKING_LOG_ODDS, RANKING_LOG_ODDS) / RANKING_LOG_ODDS + 1.0) / 2.0
    return np.minimum((share * RANKING_BINS).astype(int), RANKING_BINS - 1)


def _class_summary(t):
    n = float(t["rows"])
    gaps = np.abs(t["bin_probability"] - t["bin_positives"]).sum()
    return {
        "accuracy": float(t["right"] / n),
        "log_loss": float(t["negative_log"] / n),
        "brier": float(t["squared"] / n),
        "ece": float(gaps / n),
        "auc": _area_under_curve(t["rank_positives"], t["rank_rows"] - t["rank_positives"]),
    }


def _area_under_curve(positives, negatives):
    """Share of (positive, negative) pairs in the right order; nan where a class is missing."""
    if positives.sum() == 0 or negatives.sum() == 0:
        return float("nan")
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + 0.5 * negatives)).sum() / (positives.sum() * negatives.sum()))
