"""What is asked of a model: predictions at new points in memory, and rows to hear."""

import time
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.bodies import NewRows, Points
from bcmdist.app.service.served import Served
from bcmdist.data.schema import Schema, taken
from bcmdist.errors import InvalidData
from bcmdist.model.model import Model


@dataclass(frozen=True)
class Predicted:
    """An answer, and what it took."""

    answer: dict
    seconds: float
    """of computing, without waiting and reading"""


def predict(served: Served, asked: Points, *, most_rows: int) -> Predicted:
    """Predictions by the names of `GBCM.predict`, with standard deviations beside variances and `lower90`, `upper90` of
    an interval of mass 0.9.

    Raises
    ------
    InvalidData, InvalidOption, Refused
    """
    _refuse_many(asked.X, most_rows)
    with served.using() as loaded:
        X = table(loaded.member.model, asked.X, asked.columns)
        start = time.perf_counter()
        edges = {
            f"{side}{_percent(mass)}": _edge(mass, side) for mass in asked.intervals for side in ("lower", "upper")
        }
        levels = tuple(dict.fromkeys([*asked.quantiles, *edges.values()]))
        how = {"exposure": asked.exposure, "trials": asked.trials, "quantiles": levels}
        method, found = loaded.predict(X, method=asked.method, **how)
        seconds = time.perf_counter() - start
        state = loaded.state
    named = with_deviations(found) | {name: found[f"quantile{level:g}"] for name, level in edges.items()}
    wanted = {f"quantile{level:g}" for level in asked.quantiles}
    shown = {n: v.tolist() for n, v in named.items() if not n.startswith("quantile") or n in wanted}
    answer = {"model": served.name, "commit": state, "method": method, "rows": len(X), "predictions": shown}
    return Predicted(answer, seconds)


def with_deviations(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Predictions with the square root beside each variance."""
    return found | {name.replace("variance", "sd"): np.sqrt(found[name]) for name in found if "variance" in name}


def _percent(mass):
    return f"{100.0 * mass:g}"


def _edge(mass, side):
    """Level of the quantile where a central interval ends; as short as its mass, or the names of two would be one."""
    tail = round(0.5 * (1.0 - mass), 12)
    return tail if side == "lower" else round(1.0 - tail, 12)


def table(model: Model, X, columns) -> np.ndarray:
    """Rows (n, D) in the order of the model's columns.

    Raises
    ------
    InvalidData
    """
    width = len(X[0])
    odd = next((k for k, row in enumerate(X) if len(row) != width), None)
    if odd is not None:
        raise InvalidData(f"X: expected {width} numbers in each row, got {len(X[odd])} in row {odd}; correct it")
    array = np.array(X, dtype=float)
    if columns is None:
        return array
    if len(columns) != width or len(set(columns)) != width:
        raise InvalidData(f"columns: expected {width} different names, one for each column of X; correct them")
    if not model.schema.columns:
        raise InvalidData("columns: expected none, the columns of the training data had no names; leave them out")
    order = taken(Schema(tuple(columns)), model.schema, "X")
    return array[:, list(order)] if order else array


def submit(served: Served, key: str, asked: NewRows, *, most_rows: int) -> tuple[dict, bool, Future]:
    """Keep rows, and let a model hear them; as `Served.submit`."""
    _refuse_many(asked.X, most_rows)
    with served.using() as loaded:
        X = table(loaded.member.model, asked.X, asked.columns)
    given = {name: getattr(asked, name) for name in ("weight", "exposure", "trials", "event")}
    for name, column in {"y": asked.y, **given}.items():
        if column is not None and len(column) != len(X):
            raise InvalidData(f"{name}: expected {len(X)} values, one for each row of X, got {len(column)}; correct it")
    companions = {name: column for name, column in given.items() if column is not None}
    return served.submit(key, X, asked.y, **companions)


def _refuse_many(X, most):
    if len(X) > most:
        raise Refused(
            413, "TooManyRows", f"X: expected at most {most} rows in a request, got {len(X)}; send them in several"
        )
