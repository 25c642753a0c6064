"""What a model shows of itself while it learns: figures that its ledger and its commit tell, without reading rows.

The page of the service draws them, routes answer with them, and `bcmdist status --watch` prints them. All are
JSON-ready, once `bcmdist.app.finite.finite` has made null of what is not finite.
"""

from collections.abc import Callable

import numpy as np

from bcmdist.api.relevance import column_names, lengthscales
from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.errors.drift import told
from bcmdist.prediction.errors.error_distribution import error_distribution_of, residuals_of
from bcmdist.prediction.scoring.excess_loss import from_facts
from bcmdist.storage.ledger import CLASSES_NOTED, NUMBERS_NOTED

STRETCHES = 100  # of the ledger, of which a curve has a point each: as many as a screen shows
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of central intervals
LINE_POINTS, MAP_POINTS = 81, 21  # of a slice, and of each side of a map
REACH = 2.0  # standard deviations of an input about its mean: where a slice or map is drawn


def relevance(snapshot: Snapshot) -> dict | None:
    """Lengthscales by column; None of models whose kernel has none.

    `share` is 1 / lengthscale beside the largest, of scaled inputs (`bcmdist.api.relevance`).
    """
    found = lengthscales(snapshot)
    if not found:
        return None
    parts = [{"part": one.name, "share": one.share.tolist(), "lengthscale": one.original.tolist()} for one in found]
    return {"columns": column_names(snapshot.model), "parts": parts}


def curve(snapshot: Snapshot) -> list[dict]:
    """How well partitions were predicted before they were absorbed, in the order of the ledger: means over stretches.

    Each has `rows` that the committee had absorbed at its end, and by name what was noted of its partitions:
    `log_score` in nats a row, `coverage95` and `pit_mean`, or of classes `accuracy`.
    """
    absorbed = np.cumsum([entry.rows for entry in snapshot.ledger])
    noted = [
        (rows, entry.arrival) for rows, entry in zip(absorbed.tolist(), snapshot.ledger, strict=True) if entry.arrival
    ]
    points = []
    for some in np.array_split(np.arange(len(noted)), min(len(noted), STRETCHES) or 1):
        if len(some):
            means = np.mean([noted[k][1] for k in some], axis=0).tolist()
            points.append({"rows": noted[some[-1]][0], **dict(zip(_names(means), means, strict=True))})
    return points


def _names(values):
    return NUMBERS_NOTED if len(values) == len(NUMBERS_NOTED) else CLASSES_NOTED


def drift(snapshot: Snapshot) -> dict:
    """Whether what arrives still looks as the model expects: `verdict` and its figures, and the `curve` they are of."""
    found = told(snapshot.ledger, from_facts(snapshot.facts.expected))
    return {"drift": found, "curve": curve(snapshot)}


def calibration(snapshot: Snapshot) -> dict:
    """How often rows lay in the intervals that they were predicted with.

    `left_out`: of some rows of each partition, each predicted by the committee that has not absorbed it (of what the
    method of the model predicts); the share of these rows in central intervals of each level, with its standard error
    from as many independent rows. `arrivals`: of rows that came after the fit, before they were absorbed. Either is
    null where nothing was noted; of classes the second holds their accuracy.
    """
    return {"left_out": _left_out(snapshot), "arrivals": _arrivals(snapshot)}


def _left_out(snapshot):
    facts = snapshot.facts
    known = residuals_of(facts, snapshot.ledger, facts.method)
    if not known.count:
        return None
    spread = error_distribution_of(snapshot, facts.method)
    places, errors, weights = known.together()
    if spread.scale is not None:
        errors = errors / np.sqrt(spread.scale.factor(places))
    mass = 2.0 * np.abs(spread.shape.cdf(errors) - 0.5)  # of the smallest central interval that holds a row
    shares = [float(np.average(mass <= level, weights=weights)) for level in LEVELS]
    effective = weights.sum() ** 2 / np.sum(weights**2)
    deviations = [float(np.sqrt(level * (1.0 - level) / effective)) for level in LEVELS]
    return {"rows": known.count, "levels": list(LEVELS), "shares": shares, "errors": deviations}


def _arrivals(snapshot):
    noted = [(entry.rows, entry.arrival) for entry in snapshot.ledger if entry.arrival]
    if not noted:
        return None
    rows = [count for count, _ in noted]
    means = np.average([values for _, values in noted], axis=0, weights=rows).tolist()
    return {"rows": sum(rows), "partitions": len(noted), **dict(zip(_names(means), means, strict=True))}


def view(snapshot: Snapshot, predict: Callable[[np.ndarray], dict]) -> dict | None:
    """Predictions along one input, or over two, within `REACH` standard deviations of their means; None of more inputs.

    Parameters
    ----------
    predict : predictions by name at rows (n, D) in original units

    Returns
    -------
    `columns`, and as `axes` the values of each input; by name the predictions there, of two inputs row by row of the
    second one: `observation_mean lower95 upper95 sd`, or `probability` of each class.
    """
    model = snapshot.model
    if model.inputs > 2:
        return None
    side = np.linspace(-REACH, REACH, LINE_POINTS if model.inputs == 1 else MAP_POINTS)
    axes = model.scaling.original_inputs(np.tile(side[:, None], (1, model.inputs))).T
    grid = np.stack([one.ravel() for one in np.meshgrid(*axes)], axis=1)
    found = predict(grid)
    shown = {name: found[name].tolist() for name in ("observation_mean", "lower95", "upper95") if name in found}
    if "probability" in found:
        shown = {"probability": found["probability"].T.tolist()}
    elif "observation_variance" in found:
        shown["sd"] = np.sqrt(found["observation_variance"]).tolist()
    return {"columns": column_names(model), "axes": axes.tolist(), **shown}


def growth(snapshot: Snapshot) -> list[dict]:
    """Commits that are still there, oldest first: `number`, `rows` absorbed, and `date` in ISO 8601."""
    return [{name: one[name] for name in ("number", "rows", "date")} for one in snapshot.store.history()]
