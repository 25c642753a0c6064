"""Scores of predictions against observations, as sums over partitions.

`real_scores`, `class_scores` and `event_scores` turn a partition into a `Scores` of additive
totals; `Scores.summary` turns the grand total into the figures users read.
"""

from dataclasses import dataclass

import numpy as np
from scoringrules import interval_score

from bcmdist import pit

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

    def summary(self) -> dict:
        """The figures: of a regression, of classes or of counts and lifetimes, whichever the totals are of.

        Numbers, but for the list `pit`.
        """
        for mark, summary in [("rank_rows", _class_summary), ("pairs", _event_summary)]:
            if mark in self.totals:
                return summary(self.totals)
        return _regression_summary(self.totals)


def real_scores(y, prediction, log_density, where: pit.Places, *, train_mean, crps):
    """Totals of predictions of real or positive y (n,), all in original units."""
    error = y - prediction["observation_mean"]
    return Scores(
        {
            "rows": np.array(len(y)),
            "squared": (error**2).sum(),
            "spread": ((y - train_mean) ** 2).sum(),
            "absolute": np.abs(error).sum(),
            "negative_log": -log_density.sum(),
            "crps": crps.sum(),
            "interval": _interval_total(y, prediction),
            **_place_totals(where),
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
        **_coverages(t),
        "interval_score": float(t["interval"] / n),
        **_place_summary(t),
    }


def _interval_total(y, prediction):
    """Sum of the interval scores of the 95 % intervals (Gneiting & Raftery 2007, eq. 43)."""
    return interval_score(y, prediction["lower95"], prediction["upper95"], 0.05, backend="numpy").sum()


def _place_totals(where):
    covered = np.array([pit.covered(where, level).sum() for level in pit.LEVELS])
    return {"covered": covered, "pit": pit.histogram(where)}


def _coverages(t):
    return {f"coverage{100 * p:.0f}": float(c / t["rows"]) for p, c in zip(pit.LEVELS, t["covered"], strict=True)}


def _place_summary(t):
    shares = t["pit"] / t["rows"]
    return {"pit_distance": pit.distance_to_uniform(shares), "pit": shares.tolist()}


def event_scores(obs, prediction, log_density, deviance, where: pit.Places):
    """Totals of predictions of counts or lifetimes; all arguments (n,) or observations of n rows.

    Concordant pairs are counted among the rows of a partition, of rates per exposure and shares of trials.
    An interval is scored against what was observed, so that there is no score of censored rows.
    """
    size, mean = obs.exposure * np.maximum(obs.trials, 1.0), prediction["observation_mean"]
    pairs, concordant = concordance_pairs(obs.y / size, obs.event, mean / size)
    return Scores(
        {
            "rows": np.array(len(obs)),
            "negative_log": -log_density.sum(),
            "deviance": deviance.sum(),
            "absolute": np.abs(obs.y - mean).sum(),
            "pairs": np.array(pairs),
            "concordant": np.array(concordant),
            "censored": np.sum(~where.seen),
            "interval": _interval_total(obs.y, prediction),
            **_place_totals(where),
        }
    )


def _event_summary(t):
    n = float(t["rows"])
    return {
        "mnlp": float(t["negative_log"] / n),
        "deviance": float(t["deviance"] / n),
        **_coverages(t),
        "concordance": float(t["concordant"] / t["pairs"]) if t["pairs"] else float("nan"),
        "mae": float(t["absolute"] / n),
        "interval_score": float(t["interval"] / n) if not t["censored"] else float("nan"),
        **_place_summary(t),
    }


def concordance_pairs(y, event, predicted):
    """Comparable pairs of rows, and how many of them the prediction puts in the right order (Harrell 1982).

    Rows i and j are comparable where y_i < y_j and i is an event (not censored); ties of the prediction
    count half.
    """
    order = np.argsort(y, kind="stable")
    y, event, predicted = y[order], event[order], predicted[order]
    first = np.searchsorted(y, y, side="right")  # of the rows that are later than each
    pairs, concordant = 0, 0.0
    for i in np.flatnonzero(event):
        later = predicted[first[i] :]
        pairs += len(later)
        concordant += (later > predicted[i]).sum() + 0.5 * (later == predicted[i]).sum()
    return pairs, concordant


def class_scores(y, prediction):
    """Totals of predictions of the class number y (n,), 0 to C - 1."""
    p = prediction["probability"]
    C = p.shape[1]
    number = y.astype(int)
    own = np.take_along_axis(p, number[:, None], axis=1)[:, 0]
    one_hot = np.arange(C) == number[:, None]
    # Of two classes the probability of the second one is calibrated, of more that of the likeliest.
    judged, happened = (p[:, 1], number == 1) if C == 2 else (p.max(axis=1), p.argmax(axis=1) == number)
    calibration = np.minimum((judged * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    ranked = range(1, 2) if C == 2 else range(C)
    ranking = [_ranking_bins(p[:, c], _rest(p, c)) for c in ranked]
    return Scores(
        {
            "rows": np.array(len(y)),
            "right": np.array((p.argmax(axis=1) == number).sum()),
            "negative_log": -np.log(own).sum() if len(y) else np.array(0.0),
            "squared": ((p - one_hot) ** 2).sum() / (2.0 if C == 2 else 1.0),
            "bin_rows": np.bincount(calibration, minlength=CALIBRATION_BINS),
            "bin_probability": np.bincount(calibration, judged, CALIBRATION_BINS),
            "bin_positives": np.bincount(calibration, happened, CALIBRATION_BINS),
            "rank_rows": np.stack([np.bincount(bins, minlength=RANKING_BINS) for bins in ranking]),
            "rank_positives": np.stack(
                [np.bincount(bins, one_hot[:, c], RANKING_BINS) for c, bins in zip(ranked, ranking, strict=True)]
            ),
        }
    )


def _rest(p, c):
    return p[:, 0] if p.shape[1] == 2 else np.delete(p, c, axis=1).sum(axis=1)


def _ranking_bins(p, no):
    with np.errstate(divide="ignore"):
        log_odds = np.log(p) - np.log(no)
    share = (log_odds.clip(-RANKING_LOG_ODDS, RANKING_LOG_ODDS) / RANKING_LOG_ODDS + 1.0) / 2.0
    return np.minimum((share * RANKING_BINS).astype(int), RANKING_BINS - 1)


def _class_summary(t):
    """`brier` is the mean of (p - y)^2 for two classes, of its sum over classes for more; `auc` of each class against
    the others, averaged over the classes that occur."""
    n = float(t["rows"])
    gaps = np.abs(t["bin_probability"] - t["bin_positives"]).sum()
    areas = [_area_under_curve(yes, rows - yes) for yes, rows in zip(t["rank_positives"], t["rank_rows"], strict=True)]
    finite = [area for area in areas if np.isfinite(area)]
    return {
        "accuracy": float(t["right"] / n),
        "log_loss": float(t["negative_log"] / n),
        "brier": float(t["squared"] / n),
        "ece": float(gaps / n),
        "auc": float(np.mean(finite)) if finite else float("nan"),
    }


def _area_under_curve(positives, negatives):
    """Share of (positive, negative) pairs in the right order; nan where a class is missing."""
    if positives.sum() == 0 or negatives.sum() == 0:
        return float("nan")
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + 0.5 * negatives)).sum() / (positives.sum() * negatives.sum()))
