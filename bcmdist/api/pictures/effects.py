"""Effects: each term of the kernel that is a function of one column, with its 95 % band (as of additive models)."""

import math
from typing import Any, cast

import numpy as np

from bcmdist.api.pictures import paper
from bcmdist.api.pictures.paper import BAND, LINE
from bcmdist.api.pictures.subject import Subject, target_name
from bcmdist.api.relevance import Feature, features
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.kernels import Kernel
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.query import Query
from bcmdist.prediction.terms import refuse_terms, term_effect, term_names, term_shares

CURVE_POINTS = 120
MOST_EFFECTS, ACROSS = 24, 3  # most effects shown, and how many of them beside each other
NORMAL95 = 1.96


def effects(subject: Subject) -> Any:
    """Draw the effect of each term of one column on the latent function, in units of the target.

    An effect is the posterior mean of the term, by the committee alone, less its mean over the query points.

    Raises
    ------
    InvalidOption
        The kernel has no term of a single column, or the model has several latent functions.
    """
    model, belief = subject.snapshot.model, subject.snapshot.committee.posterior
    refuse_terms(model)
    found = one_column_terms(model)
    if not found or model.likelihood.processes > 1:
        what = (
            "kernel with terms of one column, as in se(age) + linear(area)" if not found else "single latent function"
        )
        got = (
            kernel_columns(model).shown(model.kernel_name)
            if not found
            else f"{model.likelihood.processes} of {model.likelihood.name}"
        )
        raise InvalidOption(f"--what effects: expected a {what}, got {got}; fit such a model, or take --what map")
    found = found[:MOST_EFFECTS]
    across = min(ACROSS, len(found))
    down = math.ceil(len(found) / across)
    title = f"Effects on {target_name(subject)}: mean and 95 % band of each term, less its mean over the query points"
    figure, axes = paper.sheet(
        title, width=3.6 * across + 0.6, height=3.1 * down + 0.6, ncols=across, nrows=down, squeeze=False
    )
    for axis in axes.ravel()[len(found) :]:
        axis.set_visible(False)
    explained = term_shares(model, belief)
    for axis, (name, kernel, feature) in zip(axes.ravel(), found, strict=False):
        _draw(axis, subject, belief, kernel, feature)
        share = f": {explained[name]:.0%} of variance" if name in explained else ""
        axis.set(xlabel=paper.shortened([feature.name])[0], title=paper.wrapped(name + share, 3.2))
    return figure


def one_column_terms(model: Model) -> list[tuple[str, Any, Feature]]:
    """Name, kernel and column of each term that depends on one column only."""
    names, found = term_names(model), []
    for name, kernel in zip(names, model.shared.kernel.terms, strict=False):
        used = np.flatnonzero(kernel.covered(model.inputs))
        of = [one for one in features(model) if not one.on_sphere and np.isin(used, one.inputs).all()]
        if len(used) and of:
            found.append((name, kernel, of[0]))
    return found


def _draw(axis: Any, subject: Subject, belief: Belief, kernel: Kernel, feature: Feature) -> None:
    model = subject.snapshot.model
    query = cast(Query, model.shared)  # of others there are no terms
    points, scale = query.points, model.likelihood.units.latent_length(model.scaling.y_scale)
    original = model.scaling.original_inputs(points)
    column = int(feature.inputs[0])
    levels = _levels(kernel, feature, points, original)
    if levels is None:
        place = np.linspace(original[:, column].min(), original[:, column].max(), CURVE_POINTS)
        X = np.tile(model.scaling.original_inputs(np.zeros((1, model.inputs))), (CURVE_POINTS, 1))
        X[:, column] = place
        Z = model.scaling.inputs(X)
    else:
        names, of_levels = levels
        place = np.arange(len(names))
        if feature.levels is not None:
            X = np.tile(model.scaling.original_inputs(np.zeros((1, model.inputs))), (len(names), 1))
            X[:, feature.inputs] = np.eye(len(names))
        Z = model.scaling.inputs(X) if of_levels is None else of_levels
    mean, variance = term_effect(query, belief, kernel, Z, points)
    mean, band = mean * scale, NORMAL95 * np.sqrt(variance) * scale
    if levels is None:
        axis.fill_between(place, mean - band, mean + band, color=BAND)
        axis.plot(place, mean, color=LINE)
        axis.plot(
            original[:, column], np.full(len(points), 0.02), "|", color="0.4", transform=axis.get_xaxis_transform()
        )
    else:
        axis.errorbar(place, mean, yerr=band, fmt="o", color=LINE, ecolor="0.3", capsize=2)
        axis.set_xticks(place, paper.shortened(names), rotation=45 if len(names) > 4 else 0)
    axis.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)


def _levels(
    kernel: Kernel, feature: Feature, points: FloatArray, original: FloatArray
) -> tuple[list[str], FloatArray | None] | None:
    """Names of the levels of a category, and scaled rows with these where levels are numbers; None for a number."""
    if feature.levels is not None:
        return [*feature.levels, "missing"][: len(feature.inputs)], None
    column = int(feature.inputs[0])
    if column not in kernel.level_columns(points.shape[1]):
        return None
    _, first = np.unique(points[:, column], return_index=True)  # query points lie on levels
    return [f"{value:.6g}" for value in original[first, column]], points[first]
