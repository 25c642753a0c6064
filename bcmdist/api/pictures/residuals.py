"""Pictures of observations against predictions: scatter plot and errors, or confusion matrix."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE, QUIET
from bcmdist.api.pictures.subject import Subject, target_name
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.scoring.pit import Places

MOST_POINTS = 3000  # more rows are drawn as a histogram
MOST_LABELLED = 12  # counts are written into the confusion matrix for at most so many classes
GROUPS = 10  # groups of rows, ordered by prediction
LARGEST_SCORE = 4.0
WIDE = 50.0  # positive targets with a larger ratio (largest to 1 % quantile) get a logarithmic scale


def residuals(subject: Subject) -> Any:
    """Draw observed against predicted numbers and their errors; for classes, the confusion matrix."""
    rows = subject.judged
    return _confusion(subject) if "label" in rows.columns else _numbers(subject)


def _numbers(subject: Subject) -> Any:
    rows = subject.judged
    mean, y = rows.columns["observation_mean"], rows.y
    name = target_name(subject)
    title = f"Observed against predicted {name}: {subject.description}"
    name = paper.plain(name)
    figure, (left, right) = paper.sheet(title, width=9.5, height=4.4, ncols=2)
    seen = rows.columns["seen"]
    logarithmic = y.min() > 0 and mean.min() > 0 and y.max() > WIDE * np.quantile(y, 0.01)
    if len(rows) > MOST_POINTS:
        scale = {"xscale": "log", "yscale": "log"} if logarithmic else {}
        image = left.hexbin(mean, y, gridsize=50, bins="log", mincnt=1, cmap="viridis", **scale)
        figure.colorbar(image, ax=left, label="rows")
    else:
        left.plot(mean[seen], y[seen], ".", color=LINE, markersize=3, label="observed")
        if not seen.all():
            left.plot(mean[~seen], y[~seen], "^", color="0.6", markersize=3, label="censored: at least that")
            left.legend(fontsize="small")
    paper.logarithmic(left, x=logarithmic, y=logarithmic)
    if not logarithmic:
        left.locator_params(axis="x", nbins=6)
    ends = [max(mean.min(), y.min()), min(mean.max(), y.max())]
    left.plot(ends, ends, color=QUIET, linestyle="--")
    left.set(xlabel=f"predicted mean of {name}", ylabel=f"observed {name}")
    _draw_errors(right, mean, rows.where, log=logarithmic)
    right.set(xlabel=f"predicted mean of {name}")
    return figure


def _draw_errors(axes: Any, mean: FloatArray, where: Places, *, log: bool) -> None:
    """Draw errors as normal scores, which are standard normal where predictions are right, with quantiles of groups."""
    z = np.clip(ndtri(0.5 * (where.low + where.high)), -LARGEST_SCORE, LARGEST_SCORE)
    axes.axhspan(-1.96, 1.96, color=BAND, label="95 %, if as predicted")
    axes.plot(mean, z, ".", color="0.5", markersize=2, alpha=0.5, rasterized=len(z) > MOST_POINTS)
    groups = [g for g in np.array_split(np.argsort(mean, kind="stable"), GROUPS) if len(g) >= GROUPS]
    if groups:
        place = [np.median(mean[g]) for g in groups]
        low, middle, high = (np.array([np.quantile(z[g], q) for g in groups]) for q in (0.025, 0.5, 0.975))
        axes.plot(place, middle, "o-", color=LINE, markersize=3, label="median of a tenth of rows")
        axes.plot(place, low, "_--", color=LINE, label="95 % of a tenth of rows")
        axes.plot(place, high, "_--", color=LINE)
    axes.set_ylabel("error in predicted standard deviations (normal score)")
    axes.set_ylim(-LARGEST_SCORE - 0.2, LARGEST_SCORE + 0.2)
    paper.logarithmic(axes, x=log)
    if not log:
        axes.locator_params(axis="x", nbins=6)
    axes.legend(fontsize="small", loc="lower right")


def _confusion(subject: Subject) -> Any:
    rows, labels = subject.judged, list(map(str, subject.snapshot.model.class_labels))
    C = len(labels)
    predicted = rows.columns["probability"].argmax(axis=1)
    table = np.bincount(C * rows.y.astype(int) + predicted, minlength=C * C).reshape(C, C)
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    right = np.trace(table) / table.sum()
    title = f"Classes confused: {subject.description}, {right:.1%} right"
    figure, axes = paper.sheet(title, width=6.4, height=5.4)
    image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(image, ax=axes, label="share of the rows of a class")
    axes.set(xlabel="predicted class", ylabel="true class")
    if C <= MOST_LABELLED:
        names = paper.shortened(labels, most=16)
        axes.set_xticks(range(C), names, rotation=30, ha="right")
        axes.set_yticks(range(C), names)
        for true, label in np.ndindex(C, C):
            shade = "white" if share[true, label] > 0.5 else "black"
            axes.text(label, true, f"{table[true, label]:,}", ha="center", va="center", color=shade, fontsize="small")
    return figure
