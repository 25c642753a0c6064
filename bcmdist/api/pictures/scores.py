"""Calibration pictures, from score totals over any number of rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE, QUIET
from bcmdist.data.groups import Location
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.scoring import pit
from bcmdist.prediction.scoring.scores import CALIBRATION_BINS, Scores
from bcmdist.prediction.scoring.verdicts import calibration_in_words

ERRORS = 1.96  # half length of bars and bands in standard errors: 95 %


def score_picture(path: Location, scores: Scores) -> None:
    """Write the calibration picture of score totals to a file."""
    with paper.styled():
        paper.save(calibration(scores), path)


def calibration(scores: Scores) -> Any:
    """Draw the reliability diagram for classes, or the calibration picture for numbers."""
    return reliability_diagram(scores) if "bin_rows" in scores.totals else calibration_picture(scores)


def reliability_diagram(scores: Scores) -> Any:
    """Draw the observed share of a class against its predicted probability, with 95 % intervals and rows per bin.

    The class is the second one of two, or the most probable one of several.
    """
    t = scores.totals
    rows, filled = t["bin_rows"], t["bin_rows"] > 0
    judged = "class 1" if t["ranked"].classes == 1 else "the likeliest class"
    title = f"Reliability of {t['rows']:,} rows. {_sentence(calibration_in_words(scores))}"
    figure, (top, bottom) = paper.sheet(title, width=5.2, height=6.2, nrows=2, height_ratios=(3, 1), sharex=True)
    expected, seen = (t[name][filled] / rows[filled] for name in ("bin_probability", "bin_positives"))
    low, high = wilson(t["bin_positives"][filled], rows[filled])
    top.plot([0, 1], [0, 1], color=QUIET, linestyle="--", label="as predicted")
    bars = np.maximum([seen - low, high - seen], 0.0)
    top.errorbar(expected, seen, yerr=bars, fmt="o-", color=LINE, capsize=2, markersize=4, label="observed, 95 %")
    first = np.flatnonzero(filled)[0] / CALIBRATION_BINS
    top.set(ylabel=f"observed share of {judged}", ylim=(min(first, low.min()) - 0.02, 1.02))
    top.legend(loc="upper left")
    bottom.bar((np.arange(CALIBRATION_BINS) + 0.5) / CALIBRATION_BINS, rows, width=0.9 / CALIBRATION_BINS, color=LINE)
    bottom.set(xlabel=f"predicted probability of {judged}", ylabel="rows a bin", xlim=(first, 1), yscale="log")
    bottom.set_ylim(bottom=0.7)
    return figure


def calibration_picture(scores: Scores) -> Any:
    """Draw the histogram of the probability integral transform, and the excess coverage of central intervals."""
    t = scores.totals
    n, shares = float(t["rows"]), t["pit"] / t["rows"]
    title = f"Calibration of {t['rows']:,} rows. {_sentence(calibration_in_words(scores))}"
    figure, (left, right) = paper.sheet(title, width=9.0, height=4.2, ncols=2)
    noise = ERRORS * np.sqrt((pit.BINS - 1.0) / n)
    left.axhspan(max(0.0, 1.0 - noise), 1.0 + noise, color=BAND, label="95 % of bins, if as predicted")
    left.bar((np.arange(pit.BINS) + 0.5) / pit.BINS, shares * pit.BINS, width=0.9 / pit.BINS, color=LINE, zorder=2)
    left.set(xlabel=_place_label(t), ylabel="density of rows", xlim=(0, 1))
    left.set_ylim(top=1.2 * left.get_ylim()[1])
    left.legend(loc="upper center", fontsize="small")
    levels, held = central(shares)
    right.axhline(0.0, color=QUIET, linestyle="--")
    error = ERRORS * np.sqrt(np.maximum(held * (1.0 - held), 0.0) / n)  # sums of shares may exceed 1 by rounding
    right.errorbar(levels, 100.0 * (held - levels), yerr=100.0 * error, fmt="o-", color=LINE, capsize=2, markersize=4)
    right.set(xlabel="probability of the central interval", xlim=(0, 1))
    right.set_ylabel("rows inside beyond that (percentage points)\nbelow 0: too narrow; above: too wide")
    low, high = right.get_ylim()
    right.set_ylim(min(low, -5.0), max(high, 5.0))
    return figure


def _place_label(t: Mapping[str, Any]) -> str:
    """Return the axis label of the histogram, with a note for counts and censored rows."""
    where = "where observations lie in their predicted distributions"
    width = f"{where}\n(0: below all of it, 1: above)"
    return f"{width}; counts and censored rows lie in ranges,\ndivided among bins" if "comparable" in t else width


def central(shares: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nominal probabilities of central intervals that consist of whole bins, and their actual coverage."""
    half = pit.BINS // 2
    reach = np.arange(1, half)
    held = np.array([shares[half - k : half + k].sum() for k in reach])
    return 2.0 * reach / pit.BINS, held


def wilson(positives: FloatArray, rows: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper ends of 95 % intervals of shares (Wilson 1927), (n,) each."""
    p, z2 = positives / rows, ERRORS**2
    middle = (p + 0.5 * z2 / rows) / (1.0 + z2 / rows)
    half = ERRORS * np.sqrt(p * (1.0 - p) / rows + 0.25 * z2 / rows**2) / (1.0 + z2 / rows)
    return middle - half, middle + half


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
