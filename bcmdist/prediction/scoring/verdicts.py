"""Verdicts: what totals of scores say of the probabilities that were predicted, in words.

Of numbers the probability integral transform is looked at: where predictions are right the middle half of them holds
half of the observations. Counts lie in a range of it and are divided among its bins, so that their being discrete
moves nothing; the coverage of their intervals, whose limits belong to them, is higher. Of classes the confidence,
the probability of the class that is likelier, is compared with how often that class was the true one.
"""

from typing import Any

import numpy as np

from bcmdist.prediction.scoring.pit import BINS
from bcmdist.prediction.scoring.scores import CALIBRATION_BINS, Scores

# Central shares that are judged, those of a histogram as wide as whole bins, and by how much they may be off. The
# tolerances are arbitrary: what nobody would act on.
TOLERATED = {0.5: 0.05, 0.9: 0.03}
TOLERATED_COVERAGE = {0.5: 0.05, 0.95: 0.02}
TOLERATED_LEAN = 0.05
TOLERATED_CONFIDENCE = 0.02
# And what chance does is not remarked on: standard errors.
STANDARD_ERRORS = 3.0


def verdict(scores: Scores) -> str:
    """Sentences about the probabilities that were predicted, joined by "; "."""
    return "; ".join(_of_classes(scores.totals) if "bin_rows" in scores.totals else _of_numbers(scores.totals))


def of_coverages(middle, wide) -> str:
    """What to think of intervals of which those of 50 and of 95 % hold these shares, which are known exactly."""
    signs = (
        _sign(share - level, TOLERATED_COVERAGE[level], level, np.inf)
        for level, share in zip(TOLERATED_COVERAGE, (middle, wide), strict=True)
    )
    return _KINDS[tuple(signs)]


def _of_numbers(t: dict[str, Any]) -> list[str]:
    n, pit = float(t["rows"]), t["pit"] / t["rows"]
    held = {level: float(_middle(pit, level)) for level in TOLERATED}
    off = {level: _sign(share - level, TOLERATED[level], level, n) for level, share in held.items()}
    said = ", ".join(f"{share:.0%} of rows lie in the middle {level:.0%}" for level, share in held.items())
    kind = _KINDS[off[0.5], off[0.9]]
    above = float(pit[BINS // 2 :].sum())
    if not _sign(above - 0.5, TOLERATED_LEAN, 0.5, n):
        return [f"{kind}: {said} of their predicted distributions"]
    kind = kind if any(off.values()) else "intervals are as wide as they should be"
    lean = f"predictions lean: {above:.0%} of observations lie above the predicted median"
    return [f"{kind}: {said} of their predicted distributions", lean]


# Of the signs of what is off at 50 and at 90 %.
_UNDER = "under-confident: intervals are wider than they need be"
_OVER = "over-confident: intervals are too narrow"
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


def _middle(pit, level):
    """Share of a histogram in its middle."""
    out = round(0.5 * (1.0 - level) * BINS)
    return pit[out : BINS - out].sum()


def _sign(gap, tolerated, p, n):
    """-1, 0 or 1: on which side a share of n rows is of the probability p, or that it need not be told."""
    noise = STANDARD_ERRORS * np.sqrt(p * (1.0 - p) / n)
    return 0 if abs(gap) <= max(tolerated, noise) else int(np.sign(gap))


def _of_classes(t: dict[str, Any]) -> list[str]:
    """Of two classes the one that is likelier in a bin of the second's probability, of more the likeliest."""
    rows, p, happened = (np.asarray(t[name], dtype=float) for name in ("bin_rows", "bin_probability", "bin_positives"))
    n = rows.sum()
    other = (p < 0.5 * rows) & (t["ranked"].classes == 1)
    confidence = float(np.where(other, rows - p, p).sum() / n)
    right = float(np.where(other, rows - happened, happened).sum() / n)
    side = _sign(right - confidence, TOLERATED_CONFIDENCE, np.clip(confidence, 1.0 / n, 1.0 - 1.0 / n), n)
    kind = {0: "probabilities can be trusted", 1: "under-confident", -1: "over-confident"}[side]
    found = [f"{kind}: the likelier class was expected to be right in {confidence:.1%} of rows, it was in {right:.1%}"]
    return found + _worst_bin(rows, p, happened, n)


def _worst_bin(rows, p, happened, n):
    """The bin that is farthest off, where that is told."""
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
