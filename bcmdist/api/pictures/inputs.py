"""Picture of the relevance of inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import LINE
from bcmdist.api.pictures.subject import Subject
from bcmdist.api.relevance import Lengthscales, Losses, features
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import IntArray

MOST_COLUMNS = 30  # most inputs shown in a picture
LINEAR = "The prior mean is linear: an input may matter by that, too, whatever its lengthscale."


def relevance(subject: Subject, lost: Losses | None = None) -> Any:
    """Draw the lengthscales of each column and, where the subject has rows, the permutation importance."""
    names, parts = [one.name for one in features(subject.snapshot.model)], subject.of.lengthscales()
    if subject.rows is not None and lost is None:
        lost = subject.losses()
    if not parts and lost is None:
        raise InvalidOption(
            f"--what relevance: expected a kernel with lengthscales, {subject.snapshot.facts.expert} has none; give "
            "--data TEST.zarr to see what predictions lose when a column is shuffled"
        )
    by = lost.mean if lost is not None else np.max([part.share for part in parts], axis=0)
    order = np.argsort(-by, kind="stable")[:MOST_COLUMNS]
    title = f"Relevance of {len(order)} of {len(names)} inputs, the largest first"
    if parts and subject.snapshot.model.shared.mean.kind == "linear":
        title += f". {LINEAR}"
    if parts and subject.averaged:
        title += f". {subject.averaged}"
    height = 1.6 + 0.28 * len(order) * max(1, len(parts))
    figure, axes = paper.sheet(title, width=9.0, height=height, ncols=bool(parts) + (lost is not None), squeeze=False)
    if parts:
        _draw_lengthscales(axes[0, 0], [names[k] for k in order], parts, order)
    if lost is not None:
        place = np.arange(len(order))
        axes[0, -1].barh(place, lost.mean[order], xerr=1.96 * lost.error[order], color=LINE, ecolor="0.3", capsize=2)
        axes[0, -1].set_yticks(place, paper.shortened(names[k] for k in order))
        axes[0, -1].set(xlabel=f"lost when the column is shuffled\n(nats a row, 95 % intervals; {lost.rows:,} rows)")
        axes[0, -1].invert_yaxis()
    return figure


def _draw_lengthscales(axes: Any, names: Sequence[str], parts: Sequence[Lengthscales], order: IntArray) -> None:
    width = 0.8 / len(parts)
    for number, part in enumerate(parts):
        place = np.arange(len(order)) + number * width
        bars = axes.barh(place, part.share[order], height=0.9 * width, label=part.name)
        axes.bar_label(bars, [f" {value:.3g}" for value in part.original[order]], fontsize="small")
    axes.set_yticks(np.arange(len(order)) + 0.5 * (len(parts) - 1) * width, paper.shortened(names))
    shared = " (all inputs share one)" if all(part.shared for part in parts) else ""
    axes.set(xlabel=f"1 / lengthscale of scaled inputs, beside the largest{shared};\nlengthscales in the inputs' units")
    axes.set_xlim(0.0, 1.25)
    axes.invert_yaxis()
    if len(parts) > 1:
        axes.legend(fontsize="small")
