"""Maps: predictions on a grid of two inputs, such as coordinates, with standard errors and probabilities of exceedance.

The two inputs are longitude and latitude of a point on a sphere; else the coordinates, where there are two
(`learning.column_roles`); else those that matter most. Other inputs are at their means.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE
from bcmdist.api.pictures.subject import Subject, target_name
from bcmdist.api.plane import Plane, sphere_plane, typical_row
from bcmdist.api.relevance import column_names, features
from bcmdist.errors import InvalidOption
from bcmdist.learning.column_roles import map_axes
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.model import Model
from bcmdist.prediction.exceedance import above_name, refuse_thresholds

CELLS = 60  # grid cells of a map, along each input
CURVE_POINTS = 200
PANEL_WIDTH = 4.5  # inches
MAP_HALF_WIDTH = 1.7  # without rows, a map extends so many standard deviations from the mean of an input
SHOWN_ROWS = 500

Field = tuple[str, FloatArray, str, dict[str, float]]
"""one map: title, values (CELLS^2,), colour map, and limits of the colours"""


def plane(subject: Subject) -> Any:
    """Draw predictions along two inputs, with standard errors and, for each threshold of the subject, the probability
    that the function is above it. A model with a single input gets a curve.
    """
    model = subject.snapshot.model
    refuse_thresholds(model, subject.above)
    if model.inputs == 1:
        if subject.above:
            raise InvalidOption("--above: expected a model of two inputs or more, got one input; leave it out")
        return _curve(subject)
    of = _plane(subject)
    a, b, X = of.grid(typical_row(model), CELLS)
    predictions = subject.predicted(X, above=subject.above)
    fields = _classes(model, predictions) if "label" in predictions else _numbers(model, predictions, subject.above)
    others = of.others(model)
    typical = "means" if model.inputs == others + len(of.columns) else "means or most frequent levels"
    output = f" of {model.outputs[0]}" if model.outputs else ""
    others_fixed = f"; the other {others} inputs at their {typical}" if others > 0 else ""
    title = f"Predictions of {target_name(subject)}{output} along {of.names[0]} and {of.names[1]}{others_fixed}"
    figure, axes = paper.sheet(title, width=PANEL_WIDTH * len(fields), height=4.0, ncols=len(fields), sharey=True)
    for one, (name, values, colours, limits) in zip(axes, fields, strict=True):
        how = {"cmap": colours, "shading": "nearest", "rasterized": True} | limits
        image = one.pcolormesh(a, b, values.reshape(CELLS, CELLS), **how)
        figure.colorbar(image, ax=one)
        one.set(xlabel=paper.shortened(of.names)[0], title=paper.wrapped(name, PANEL_WIDTH))
        one.locator_params(axis="x", nbins=5)
        if of.rows is not None and others <= 0:
            one.plot(*of.rows[:SHOWN_ROWS].T, ".", color="0.2", markersize=1.5)
        if of.spherical:
            one.xaxis.set_major_formatter(lambda x, _: f"{(x + 180.0) % 360.0 - 180.0:g}")
    axes[0].set(ylabel=paper.shortened(of.names)[1])
    return figure


def _plane(subject: Subject) -> Plane:
    model = subject.snapshot.model
    if found := sphere_plane(model, None if subject.rows is None else subject.rows.X):
        return found
    columns = list(map_axes(model.schema, model.inputs)) or _two(subject)
    names = column_names(model)
    named = names[columns[0]], names[columns[1]]
    if subject.rows is None:
        low, high = model.scaling.original_inputs(MAP_HALF_WIDTH * np.array([[-1.0], [1.0]]) * np.ones(model.inputs))
        return Plane(named, low[columns], high[columns], columns)
    rows = subject.rows.X[:, columns]
    low, high = np.quantile(rows, (0.0, 1.0) if model.inputs == 2 else (0.01, 0.99), axis=0)
    return Plane(named, low, high, columns, rows)


def _numbers(model: Model, predictions: Mapping[str, np.ndarray], above: Sequence[float]) -> list[Field]:
    noise = np.sqrt(np.maximum(predictions["observation_variance"] - predictions["variance"], 0.0).mean())
    deviation, name = np.sqrt(predictions["observation_variance"]), "predicted deviation"
    if model.normal:
        deviation = np.sqrt(predictions["variance"])
        name = f"standard error of the function (noise: {noise:.3g} more)"
    probabilities = [
        (f"probability of more than {t:g}", predictions[above_name(t)], "RdYlBu_r", {"vmin": 0.0, "vmax": 1.0})
        for t in above
    ]
    return [
        ("predicted mean", predictions["observation_mean"], "viridis", {}),
        (name, deviation, "magma", {}),
        *probabilities,
    ]


def _classes(model: Model, predictions: Mapping[str, np.ndarray]) -> list[Field]:
    p, labels = predictions["probability"], model.class_labels
    if len(labels) == 2:
        return [
            (f"probability of {labels[1]!s:.28}", p[:, 1], "RdBu_r", {}),
            (
                "deviation of the latent function",
                np.sqrt(predictions["variance"]).reshape(len(p), -1).max(axis=1),
                "magma",
                {},
            ),
        ]
    return [
        ("number of the likeliest class", p.argmax(axis=1).astype(float), "tab20", {}),
        ("its probability", p.max(axis=1), "viridis", {}),
    ]


def _curve(subject: Subject) -> Any:
    model = subject.snapshot.model
    ends = model.scaling.original_inputs(MAP_HALF_WIDTH * np.array([[-1.0], [1.0]]))
    if subject.rows is not None:
        ends = np.quantile(subject.rows.X, (0.01, 0.99), axis=0)
    x = np.linspace(ends[0, 0], ends[1, 0], CURVE_POINTS)
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


def _two(subject: Subject) -> list[int]:
    """Return the two inputs with the shortest lengthscales, or the first two without lengthscales.

    Inputs of categories are used only if there are not enough numeric ones.
    """
    parts, found = subject.of.lengthscales(), features(subject.snapshot.model)
    share = np.max([part.share for part in parts], axis=0) if parts else np.ones(len(found))
    order = sorted(np.argsort(-share, kind="stable"), key=lambda k: found[k].levels is not None)
    columns: list[int] = np.sort(np.concatenate([found[k].inputs for k in order])[:2]).tolist()
    return columns
