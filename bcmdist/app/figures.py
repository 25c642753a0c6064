"""Figures that describe a model, from its ledger and its commit, without reading rows.

Routes of the service return them, its page draws them, and `bcmdist status --watch` prints them. They are ready for
JSON once `bcmdist.app.finite.finite` has replaced numbers that are not finite by null.
"""

from collections.abc import Callable

import numpy as np

from bcmdist.api.facade import Facade
from bcmdist.api.plane import Plane, sphere_plane, typical_row
from bcmdist.api.relevance import column_names
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.tables.coding import Number, Quantity
from bcmdist.learning.column_roles import map_axes
from bcmdist.prediction.errors.drift import MOST_ARRIVALS, drift_in
from bcmdist.prediction.errors.error_distribution import error_distribution_of, residuals_of
from bcmdist.prediction.scoring.excess_loss import from_facts
from bcmdist.storage.entry import CLASS_SCORES, NUMBER_SCORES

STRETCHES = 100  # largest number of points of a curve, one per stretch of the ledger; enough for a screen
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # nominal coverage of central intervals
MAP_POINTS = 31  # of each side of a map
REACH = 2.0  # half-width of a range around the mean of an input, in standard deviations, where none was recorded


def relevance(fitted: Facade) -> dict | None:
    """Return lengthscales by column, in original units; None for kernels without lengthscales.

    `share` is 1 / lengthscale of the scaled input, divided by the largest such value (`bcmdist.api.relevance`).
    """
    found = fitted.lengthscales()
    if not found:
        return None
    parts = [{"part": one.name, "share": one.share.tolist(), "lengthscale": one.original.tolist()} for one in found]
    return {"columns": column_names(fitted.predictive.snapshot.model), "parts": parts}


def curve(snapshot: Snapshot) -> list[dict]:
    """Return how well partitions were predicted before they were absorbed, averaged over stretches of the ledger,
    of its last `MOST_ARRIVALS` partitions.

    Each point has `rows`, the number of rows absorbed at the end of its stretch, and the mean of the scores recorded
    for its partitions: `log_score` in nats per row, `coverage95` and `pit_mean`; for classes `log_score`, `accuracy`.
    """
    last = snapshot.ledger[-MOST_ARRIVALS:]
    absorbed = snapshot.ledger.rows - np.cumsum([0, *(entry.rows for entry in reversed(last))])[-2::-1]
    recorded = [(rows, entry.arrival) for rows, entry in zip(absorbed.tolist(), last, strict=True) if entry.arrival]
    points = []
    for some in np.array_split(np.arange(len(recorded)), min(len(recorded), STRETCHES) or 1):
        if len(some):
            means = np.mean([recorded[k][1] for k in some], axis=0).tolist()
            points.append({"rows": recorded[some[-1]][0], **dict(zip(_names(means), means, strict=True))})
    return points


def _names(values):
    return NUMBER_SCORES if len(values) == len(NUMBER_SCORES) else CLASS_SCORES


def drift(snapshot: Snapshot) -> dict:
    """Return whether new data still look as the model expects: `drift` (`verdict` and figures), and the `curve`."""
    found = drift_in(snapshot.ledger, from_facts(snapshot.facts.errors.expected))
    return {"drift": found, "curve": curve(snapshot)}


def calibration(snapshot: Snapshot) -> dict:
    """Return how often rows lay inside their predicted intervals.

    `left_out`: leave-one-out residuals of some training rows of each partition, under the model's prediction method.
    Gives the share of rows in the central interval of each level, and its standard error from the effective number of
    rows. `arrivals`: mean scores, as in `curve`, of rows that arrived after the fit, predicted before they were
    absorbed. Either is None if nothing was recorded.
    """
    return {"left_out": _left_out(snapshot), "arrivals": _arrivals(snapshot)}


def _left_out(snapshot):
    facts = snapshot.facts
    residuals = residuals_of(facts, snapshot.ledger, facts.method)
    if not residuals.count:
        return None
    distribution = error_distribution_of(snapshot, facts.method)
    places, errors, weights = residuals.arrays()
    errors = errors / np.sqrt(distribution.factor(places))
    mass = 2.0 * np.abs(distribution.shape.cdf(errors) - 0.5)  # level of the smallest interval with the row
    shares = [float(np.average(mass <= level, weights=weights)) for level in LEVELS]
    effective = weights.sum() ** 2 / np.sum(weights**2)
    deviations = [float(np.sqrt(level * (1.0 - level) / effective)) for level in LEVELS]
    return {"rows": residuals.count, "levels": list(LEVELS), "shares": shares, "errors": deviations}


def _arrivals(snapshot):
    recorded = [(entry.rows, entry.arrival) for entry in snapshot.ledger.latest_arrivals(MOST_ARRIVALS)]
    if not recorded:
        return None
    rows = [count for count, _ in recorded]
    means = np.average([values for _, values in recorded], axis=0, weights=rows).tolist()
    return {"rows": sum(rows), "partitions": len(recorded), **dict(zip(_names(means), means, strict=True))}


def ranges(snapshot: Snapshot) -> list[tuple[float, float]]:
    """Return the smallest and largest value of each input in training, (D, 2), in original units.

    Where they were not recorded, `REACH` standard deviations on either side of the means.
    """
    if snapshot.facts.survey.ranges:
        return snapshot.facts.survey.ranges
    edges = np.outer([-REACH, REACH], np.ones(snapshot.model.inputs))
    low, high = snapshot.model.scaling.original_inputs(edges).tolist()
    return list(zip(low, high, strict=True))


def view(snapshot: Snapshot, predict: Callable[[np.ndarray], dict]) -> dict | None:
    """Return predictions on a grid over two coordinates.

    Parameters
    ----------
    predict : function from rows (n, D) in original units to predictions by name

    Returns
    -------
    dict or None
        `columns`, the names of those across and up; `inputs`, their numbers, or three of a point on a sphere; `axes`,
        their values; `others`, the number of other columns of the table, at typical values; and the predictions
        `observation_mean`, `lower95`, `upper95` and `sd`, or for classes `probability`, one list per class. The first
        coordinate varies fastest. None for models without coordinates, unless there are two inputs, both of them
        numbers; and for models of several outputs.
    """
    of = None if snapshot.model.outputs else _plane(snapshot)
    if of is None:
        return None
    across, up, X = of.grid(typical_row(snapshot.model), MAP_POINTS)
    found = predict(X)
    shown = {name: found[name].tolist() for name in ("observation_mean", "lower95", "upper95") if name in found}
    if "probability" in found:
        shown = {"probability": found["probability"].T.tolist()}
    elif "observation_variance" in found:
        shown["sd"] = np.sqrt(found["observation_variance"]).tolist()
    places = {"columns": list(of.names), "inputs": list(of.columns), "axes": [across.tolist(), up.tolist()]}
    return {**places, "others": len(_columns(snapshot.model)) - len(of.names), **shown}


def _columns(model) -> dict[str, bool]:
    """Return whether each column of the table that a model was fitted to holds numbers, by name."""
    if model.schema.coding is None:
        return dict.fromkeys(column_names(model), True)
    codes = model.schema.coding.codes
    return {name: isinstance(code, Number | Quantity) for code in codes for name in code.columns}


def _plane(snapshot):
    """Return the coordinates of a model, or its two inputs; None if there are neither."""
    model = snapshot.model
    if found := sphere_plane(model):
        return found
    names, numbers = column_names(model), _columns(model)
    columns = map_axes(model.schema, model.inputs) or tuple(range(model.inputs) if model.inputs == 2 else ())
    if not columns or not all(numbers.get(names[k]) for k in columns):
        return None
    low, high = np.array(ranges(snapshot))[list(columns)].T
    return Plane([names[k] for k in columns], low, high, columns)


def growth(fitted: Facade) -> list[dict]:
    """Return the commits that exist, oldest first: `number`, `rows` absorbed, and `date` in ISO 8601."""
    return [{name: one[name] for name in ("number", "rows", "date")} for one in fitted.history()]
