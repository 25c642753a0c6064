"""Pictures of the demo, where matplotlib is installed (the extra `plot`)."""

from pathlib import Path

from bcmdist.errors import MissingExtra
from bcmdist.scores import CALIBRATION_BINS

HOW_TO_GET = "pictures need matplotlib: pip install 'bcmdist[plot]'"


def _pyplot():
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtra(HOW_TO_GET) from error
    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def learning_curve(path, curve, *, majority_share):
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


def reliability_diagram(path, probability, labels):
    """Observed share of class 1 against the predicted probability, with the rows in each bin."""
    import numpy as np

    pyplot = _pyplot()
    bins = np.minimum((probability * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    rows = np.bincount(bins, minlength=CALIBRATION_BINS)
    filled = rows > 0
    predicted = np.bincount(bins, probability, CALIBRATION_BINS)[filled] / rows[filled]
    observed = np.bincount(bins, labels, CALIBRATION_BINS)[filled] / rows[filled]
    figure, (top, bottom) = pyplot.subplots(
        2, 1, figsize=(4.5, 5.5), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    top.plot([0, 1], [0, 1], color="0.6", linestyle="--")
    top.plot(predicted, observed, "o-")
    top.set(ylabel="observed share of class 1", title="Reliability")
    bottom.bar((np.arange(CALIBRATION_BINS) + 0.5) / CALIBRATION_BINS, rows, width=0.9 / CALIBRATION_BINS)
    bottom.set(xlabel="predicted probability of class 1", ylabel="rows", xlim=(0, 1))
    figure.savefig(Path(path), dpi=120)
    pyplot.close(figure)
