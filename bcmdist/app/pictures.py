"""Pictures of the demo and of scores, where matplotlib is installed (the extra `plot`)."""

from pathlib import Path

import numpy as np

from bcmdist.errors import InvalidOption, MissingExtra
from bcmdist.prediction.scoring import pit
from bcmdist.prediction.scoring.scores import CALIBRATION_BINS
from bcmdist.storage.ledger import NUMBERS_NOTED

SMOOTHED = 20  # stretches of arrivals in a picture of drift, about
HOW_TO_GET = "pictures need matplotlib: pip install 'bcmdist[plot]'"


def _pyplot():
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra(HOW_TO_GET) from error
    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def check(path) -> None:
    """Refuse a picture that could not be written, before there is anything to draw.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    known = _pyplot().Figure().canvas.get_supported_filetypes()
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in known:
        raise InvalidOption(f"picture: expected a name that ends in one of {', '.join(sorted(known))}, got {path}")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidOption(f"picture: expected a directory at {Path(path).absolute().parent}, found none; make it")


def learning_curve(path, curve, *, majority_share) -> None:
    """Accuracy and log loss against rows seen (GBCM paper, figure 2)."""
    pyplot = _pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    rows = [point["rows"] for point in curve]
    left.plot(rows, [point["accuracy"] for point in curve], "o-")
    left.axhline(majority_share, color="0.6", linestyle="--", label="larger class")
    left.set(xscale="log", xlabel="rows seen", ylabel="accuracy against noise-free labels")
    left.legend()
    right.plot(rows, [point["log_loss"] for point in curve], "o-")
    right.set(xscale="log", xlabel="rows seen", ylabel="log loss against noise-free labels (nats)")
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)


def score_picture(path, scores) -> None:
    """How far the predictions that were scored can be trusted: of classes, or of numbers."""
    draw = reliability_diagram if "bin_rows" in scores.totals else calibration_picture
    draw(path, scores)


def reliability_diagram(path, scores) -> None:
    """Observed share of a class against its predicted probability, with the rows in each bin.

    Of two classes the second one, of more the likeliest one.
    """
    t = scores.totals
    rows, filled = t["bin_rows"], t["bin_rows"] > 0
    judged = "class 1" if t["ranked"].classes == 1 else "the likeliest class"
    pyplot = _pyplot()
    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(4.5, 5.5), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    top.plot([0, 1], [0, 1], color="0.6", linestyle="--")
    top.plot(t["bin_probability"][filled] / rows[filled], t["bin_positives"][filled] / rows[filled], "o-")
    top.set(ylabel=f"observed share of {judged}", title="Reliability")
    bottom.bar((np.arange(CALIBRATION_BINS) + 0.5) / CALIBRATION_BINS, rows, width=0.9 / CALIBRATION_BINS)
    bottom.set(xlabel=f"predicted probability of {judged}", ylabel="rows", xlim=(0, 1))
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)


def calibration_picture(path, scores) -> None:
    """Histogram of the probability integral transform, and coverage of intervals against their probability."""
    t = scores.totals
    pyplot = _pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    left.bar((np.arange(pit.BINS) + 0.5) / pit.BINS, t["pit"] / t["rows"] * pit.BINS, width=0.9 / pit.BINS)
    left.axhline(1.0, color="0.6", linestyle="--")
    left.set(xlabel="probability integral transform", ylabel="density of rows", xlim=(0, 1))
    right.plot([0, 1], [0, 1], color="0.6", linestyle="--")
    right.plot(pit.LEVELS, t["covered"] / t["rows"], "o-")
    right.set(xlabel="probability of the interval", ylabel="share of rows inside", xlim=(0, 1), ylim=(0, 1))
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)


def drift_picture(path, table) -> None:
    """How well partitions were predicted before they were heard, in the order of their arrival.

    Parameters
    ----------
    table : (n, 2 or 3), what was noted of them (`bcmdist.prediction.arrivals.drift.arrivals`)
    """
    pyplot = _pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    number = np.arange(1, len(table) + 1)
    share = "rows in their 95 % intervals" if table.shape[1] == len(NUMBERS_NOTED) else "accuracy"
    for axes, values, name in ((left, table[:, 0], "log score (nats per row)"), (right, table[:, 1], share)):
        axes.plot(number, values, ".", color="0.7")
        width = max(1, len(table) // SMOOTHED)
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        axes.plot(number[width - 1 :], smooth, label=f"mean of the last {width}")
        axes.set(xlabel="partitions", ylabel=name)
    right.set(ylim=(0, 1.02))
    left.legend()
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)
