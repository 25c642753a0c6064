"""Pictures about inputs: the relevance of each, and predictions along two of them."""

from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE
from bcmdist.api.pictures.subject import Subject, target_name
from bcmdist.api.relevance import Losses, column_names, features
from bcmdist.errors import InvalidOption

MOST_COLUMNS = 30  # most inputs shown in a picture
CELLS = 40  # grid cells of a map, along each input
CURVE_POINTS = 200
MAP_HALF_WIDTH = 1.7  # without rows, a map extends so many standard deviations from the mean of an input
SHOWN_ROWS = 500
LINEAR = "The prior mean is linear: an input may matter by that, too, whatever its lengthscale."


# --- Relevance ---


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


def _draw_lengthscales(axes, names, parts, order):
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


# --- Predictions along inputs ---


def plane(subject: Subject) -> Any:
    """Draw predictions along the two inputs with the shortest lengthscales, other inputs at their means.

    A model with a single input gets a curve.
    """
    model = subject.snapshot.model
    axes_of = _two(subject)
    low, high = _range(subject)
    if model.inputs == 1:
        return _curve(subject, np.linspace(low[0], high[0], CURVE_POINTS))
    a, b = (np.linspace(low[k], high[k], CELLS) for k in axes_of)
    X = np.tile(_typical(model), (CELLS * CELLS, 1))
    X[:, axes_of] = np.column_stack([v.ravel() for v in np.meshgrid(a, b)])
    predictions = subject.predicted(X)
    fields = _classes(model, predictions) if "label" in predictions else _numbers(model, predictions)
    names = paper.shortened(column_names(model))
    full = column_names(model)
    others = len(features(model)) - 2 - bool(model.outputs)
    typical = "means" if model.inputs == others + 2 else "means or most frequent levels"
    output = f" of {model.outputs[0]}" if model.outputs else ""
    others_fixed = f"; the other {others} inputs at their {typical}" if others > 0 else ""
    along = f"{full[axes_of[0]]} and {full[axes_of[1]]}{others_fixed}"
    title = f"Predictions of {target_name(subject)}{output} along {along}"
    figure, axes = paper.sheet(title, width=9.0, height=4.0, ncols=2, sharey=True)
    for one, (name, values, colours) in zip(axes, fields, strict=True):
        image = one.pcolormesh(a, b, values.reshape(CELLS, CELLS), cmap=colours, shading="nearest", rasterized=True)
        figure.colorbar(image, ax=one, label=name)
        one.set(xlabel=names[axes_of[0]])
        if subject.rows is not None and model.inputs == 2:
            X = subject.rows.X[:SHOWN_ROWS]
            one.plot(X[:, 0], X[:, 1], ".", color="0.2", markersize=1.5)
    axes[0].set(ylabel=names[axes_of[1]])
    return figure


def _typical(model):
    """Return a typical row (D,): means of warped numeric inputs, most frequent levels of categories, first output."""
    X = model.scaling.original_inputs(np.zeros((1, model.inputs)))[0]
    for feature in features(model):
        if feature.levels is not None:
            X[feature.inputs] = np.arange(len(feature.inputs)) == np.argmax(X[feature.inputs])
    return X


def _numbers(model, predictions):
    deviation = np.sqrt(predictions["observation_variance"])
    return [("predicted mean", predictions["observation_mean"], "viridis"), ("predicted deviation", deviation, "magma")]


def _classes(model, predictions):
    p, labels = predictions["probability"], model.class_labels
    if len(labels) == 2:
        return [
            (f"probability of {paper.shortened([str(labels[1])])[0]}", p[:, 1], "RdBu_r"),
            (
                "deviation of the latent function",
                np.sqrt(predictions["variance"]).reshape(len(p), -1).max(axis=1),
                "magma",
            ),
        ]
    return [
        ("number of the likeliest class", p.argmax(axis=1).astype(float), "tab20"),
        ("its probability", p.max(axis=1), "viridis"),
    ]


def _curve(subject, x):
    model = subject.snapshot.model
    predictions = subject.predicted(x[:, None])
    name = paper.shortened(column_names(model))[0]
    figure, axes = paper.sheet(
        f"Predictions of {target_name(subject)} along {column_names(model)[0]}", width=7.0, height=4.2
    )
    if "label" in predictions:
        for number, label in enumerate(model.class_labels):
            axes.plot(x, predictions["probability"][:, number], label=paper.shortened([str(label)])[0])
        axes.set(ylabel="probability", ylim=(-0.02, 1.02))
    else:
        axes.fill_between(x, predictions["lower95"], predictions["upper95"], color=BAND, label="95 % of observations")
        axes.plot(x, predictions["observation_mean"], color=LINE, label="mean")
        if subject.rows is not None:
            axes.plot(subject.rows.X[:SHOWN_ROWS, 0], subject.rows.y[:SHOWN_ROWS], ".", color="0.3", markersize=3)
        axes.set(ylabel=paper.plain(target_name(subject)))
    axes.set(xlabel=name)
    axes.legend(fontsize="small")
    return figure


def _two(subject):
    """Return the two inputs of a map: those with the shortest lengthscales, or the first two without lengthscales.

    Inputs of categories are used only if there are not enough numeric ones.
    """
    parts, found = subject.of.lengthscales(), features(subject.snapshot.model)
    share = np.max([part.share for part in parts], axis=0) if parts else np.ones(len(found))
    order = sorted(np.argsort(-share, kind="stable"), key=lambda k: found[k].levels is not None)
    return np.sort(np.concatenate([found[k].inputs for k in order])[:2])


def _range(subject):
    """Return the lower and upper limits of a map, (D,) each."""
    if subject.rows is not None:
        return np.quantile(subject.rows.X, (0.01, 0.99), axis=0)
    model = subject.snapshot.model
    low, high = model.scaling.original_inputs(MAP_HALF_WIDTH * np.array([[-1.0], [1.0]]) * np.ones(model.inputs))
    return low, high
