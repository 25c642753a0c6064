"""Verdicts: assess in words, from score totals, whether predicted probabilities are calibrated.

Numbers are assessed by the probability integral transform: if the predictions are right, its middle half contains half
of the observations. Counts are divided among the bins of their range, so discreteness has no effect; the coverage of
their intervals is higher, as intervals include their limits. For classes the confidence, the probability of the
likelier class, is compared with the frequency at which that class was the true one.
"""

from typing import Any

import numpy as np
from scipy.stats import entropy

from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.scoring.pit import BINS
from bcmdist.prediction.scoring.scores import CALIBRATION_BINS, Scores

# Central shares that are assessed (whole bins of the histogram) and their tolerated errors. The tolerances are
# arbitrary: deviations that nobody would act on.
TOLERATED = {0.5: 0.05, 0.9: 0.03}
TOLERATED_COVERAGE = {0.5: 0.05, 0.95: 0.02}
TOLERATED_LEAN = 0.05
TOLERATED_CONFIDENCE = 0.02
# Losses with a smaller relative difference are called equal.
AS_GOOD = 0.02
# Standard errors: deviations within chance are not reported.
STANDARD_ERRORS = 3.0


def verdict(scores: Scores, useless: str | None = None, better: str | None = None, *, far: bool = False) -> str:
    """Sentences about the predictions, joined by "; ": first whether others predict as well, then calibration.

    Probabilities that are calibrated but useless are not called good.

    Parameters
    ----------
    useless : sentence, where a simple baseline predicts these rows as well; default: where the mean of the training
        targets does, or the shares of two classes
    better : sentence, where another kind of model predicts these rows better
    far : whether that is far better, so that calibrated probabilities are not all that could be had
    """
    totals = scores.totals
    useless = useless or _no_better_than_the_mean(totals)
    found = _of_classes(totals) if "bin_rows" in totals else _of_numbers(totals)
    if useless:
        found = [sentence.replace(*_CALIBRATED_ONLY) for sentence in found]
    elif better and far:
        found = [sentence.replace(*_CALIBRATED) for sentence in found]
    return "; ".join([*filter(None, (useless, better)), *found])


def calibration_in_words(scores: Scores) -> str:
    """The verdict of a picture of the calibration, which shows no baselines."""
    return verdict(scores).replace(*_CALIBRATED)


def _no_better_than_the_mean(t: dict[str, Any]) -> str | None:
    """Sentence if the mean of the training targets, or the shares of two classes, predicts these rows as well."""
    n = float(t["rows"])
    if "spread" in t and t["squared"] >= (1.0 - AS_GOOD) * t["spread"] > 0.0:
        share = float(t["squared"] / t["spread"])
        return f"no better than the mean of the training targets: squared errors are {share:.0%} of those of the mean"
    if "bin_positives" in t and t["ranked"].classes == 1:
        share = float(t["bin_positives"].sum() / n)
        loss = float(entropy([share, 1.0 - share]))
        if 0.0 < share < 1.0 and t["negative_log"] / n >= (1.0 - AS_GOOD) * loss:
            return (
                f"no better than the shares of the classes: the log loss is {float(t['negative_log']) / n:.3g}, theirs "
                f"is {loss:.3g}"
            )
    return None


def of_coverages(middle: float, wide: float) -> str:
    """Verdict on intervals whose 50 and 95 % coverages are `middle` and `wide`, without sampling error."""
    narrow, wider = (
        _sign(share - level, TOLERATED_COVERAGE[level], level, np.inf)
        for level, share in zip(TOLERATED_COVERAGE, (middle, wide), strict=True)
    )
    return _KINDS[narrow, wider]


def _of_numbers(t: dict[str, Any]) -> list[str]:
    n, pit = float(t["rows"]), t["pit"] / t["rows"]
    held = {level: float(_middle(pit, level)) for level in TOLERATED}
    off = {level: _sign(share - level, TOLERATED[level], level, n) for level, share in held.items()}
    shares = ", ".join(f"{share:.0%} of rows lie in the middle {level:.0%}" for level, share in held.items())
    kind = _KINDS[off[0.5], off[0.9]]
    above = float(pit[BINS // 2 :].sum())
    if not _sign(above - 0.5, TOLERATED_LEAN, 0.5, n):
        return [f"{kind}: {shares} of their predicted distributions"]
    kind = kind if any(off.values()) else "intervals are as wide as they should be"
    lean = f"predictions lean: {above:.0%} of observations lie above the predicted median"
    return [f"{kind}: {shares} of their predicted distributions", lean]


_CALIBRATED_ONLY = ("can be trusted", "are calibrated, but say little")
_CALIBRATED = ("can be trusted", "are calibrated")
_UNDER = "under-confident: intervals are wider than they need be"
_OVER = "over-confident: intervals are too narrow"
# Keys: signs of the deviation at the narrow and at the wide central share.
_KINDS = {
    (0, 0): "intervals can be trusted",
    (1, 1): _UNDER,
    (1, 0): "under-confident in the middle: the 50 % intervals are wider than they need be",
    (0, 1): _UNDER,
    (-1, -1): _OVER,
    (-1, 0): "over-confident in the middle: the 50 % intervals are too narrow",
    (0, -1): _OVER,
    (1, -1): "errors have heavier tails than was predicted",
    (-1, 1): "errors have lighter tails than was predicted",
}


def _middle(pit: FloatArray, level: float) -> float:
    """Share of a histogram in its central part of width `level`."""
    out = round(0.5 * (1.0 - level) * BINS)
    return float(pit[out : BINS - out].sum())


def _sign(gap: float, tolerated: float, p: float, n: float) -> int:
    """-1, 0 or 1: whether a share of n rows deviates from the probability p below, insignificantly, or above."""
    noise = STANDARD_ERRORS * np.sqrt(p * (1.0 - p) / n)
    return 0 if abs(gap) <= max(tolerated, noise) else int(np.sign(gap))


def _of_classes(t: dict[str, Any]) -> list[str]:
    """Verdict on class probabilities, as sentences: the predicted and the actual accuracy of the likeliest class.

    t : score totals. For two classes the likelier class is that of each bin of the calibration histogram.
    """
    rows, p, happened = (np.asarray(t[name], dtype=float) for name in ("bin_rows", "bin_probability", "bin_positives"))
    n = rows.sum()
    other = (p < 0.5 * rows) & (t["ranked"].classes == 1)
    confidence = float(np.where(other, rows - p, p).sum() / n)
    right = float(np.where(other, rows - happened, happened).sum() / n)
    side = _sign(right - confidence, TOLERATED_CONFIDENCE, np.clip(confidence, 1.0 / n, 1.0 - 1.0 / n), n)
    kind = {0: "probabilities can be trusted", 1: "under-confident", -1: "over-confident"}[side]
    found = [f"{kind}: the likelier class was expected to be right in {confidence:.1%} of rows, it was in {right:.1%}"]
    return found + _worst_bin(rows, p, happened, n)


def _worst_bin(rows: FloatArray, p: FloatArray, happened: FloatArray, n: float) -> list[str]:
    """Sentence about the bin that deviates most, if the deviation is significant."""
    filled = rows > 0
    gap = np.zeros(CALIBRATION_BINS)
    gap[filled] = (happened[filled] - p[filled]) / rows[filled]
    worst = int(np.argmax(np.abs(gap) * np.sqrt(rows)))
    expected = p[worst] / rows[worst]
    if abs(gap[worst]) * rows[worst] / n <= 0.5 * TOLERATED_CONFIDENCE:
        return []
    if not _sign(gap[worst], TOLERATED_CONFIDENCE, np.clip(expected, 0.01, 0.99), rows[worst]):
        return []
    seen = happened[worst] / rows[worst]
    return [f"of {rows[worst]:,.0f} rows with a probability about {expected:.0%} it came true in {seen:.0%}"]
