"""Requests to one model: predict at new points in memory, or absorb rows.

Micro-batches: prediction requests that arrive during a computation are computed together after it.

Predictions at several points cost little more than at one, since the posterior is read once for all of them. The
prediction at a row does not depend on the other rows of its batch (`bcmdist.prediction.interface`).
"""

import asyncio
import collections
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import numpy as np

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.bodies import NewRows, Points
from bcmdist.app.service.commits_by_name import ServedState
from bcmdist.app.service.loaded import Loaded
from bcmdist.app.service.records import inputs_of, refuse_impossible, target_of
from bcmdist.app.service.served import Served
from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import Schema, taken
from bcmdist.errors import InvalidData
from bcmdist.model.model import Model
from bcmdist.prediction.in_memory import refuse_certain
from bcmdist.prediction.new_rows import checked_variance, new_inputs
from bcmdist.prediction.uncertain.input_uncertainty import DRAWS

OF_NEW_ROWS = ("exposure", "trials", TARGET_VARIANCE)
"""columns that describe an observation to predict"""
LEVELS = 8  # quantile levels that cost as much as one more prediction; arbitrary: more where errors are not normal


@dataclass(frozen=True)
class Question:
    """A prediction request: points, checked as far as possible without predicting, and options."""

    X: np.ndarray
    """(n, D), in the model's column order, in original units"""
    method: str | None
    quantiles: tuple[float, ...]
    edges: dict[str, float]
    """quantile levels of interval ends, by name, such as `lower90`"""
    companions: dict
    """exposure, trials and known variances of errors"""
    X_variance: np.ndarray | None = None
    """variances (n, D) or covariances (n, D, D) of input errors, in the model's column order; None for exact inputs"""
    inputs: str | None = None
    """method of averaging over input errors"""
    unknown: dict[str, int] = field(default_factory=dict)
    """number of rows with a level that training lacks, by column"""

    @property
    def load(self) -> int:
        """Computing cost, in units of one prediction at an exact point."""
        return load(len(self.X), uncertain=self.X_variance is not None, levels=len(self.levels))

    @property
    def levels(self) -> tuple[float, ...]:
        """All quantile levels to compute, without duplicates."""
        return tuple(dict.fromkeys([*self.quantiles, *self.edges.values()]))

    def pieces(self, most: int) -> Iterator["Question"]:
        """Split into questions about consecutive rows, each with a `load` of at most `most` (or a single row).

        Raises
        ------
        InvalidData
            A companion is a list whose length is not the number of rows.
        """
        rows = len(self.X)
        odd = next((n for n, one in self.companions.items() if isinstance(one, list) and len(one) != rows), None)
        if odd is not None:
            found = len(self.companions[odd])
            raise InvalidData(f"{odd}: expected one number or {rows} of them, got {found}; correct them")
        size = max(1, most * rows // self.load)
        for start in range(0, rows, size):
            part = slice(start, start + size)
            variance = None if self.X_variance is None else self.X_variance[part]
            companions = {n: v if v is None or np.ndim(v) == 0 else v[part] for n, v in self.companions.items()}
            yield replace(self, X=self.X[part], X_variance=variance, companions=companions)

    @property
    def way(self) -> tuple:
        """Batching key: questions with equal keys can be computed together. A question with companions is unique."""
        some = any(value is not None for value in self.companions.values())
        axes = 0 if self.X_variance is None else self.X_variance.ndim
        return self.method, self.levels, self.inputs, axes, id(self) if some else None


@dataclass(frozen=True)
class Predicted:
    """Predictions for one question, and their computing time."""

    summary: dict
    """model, commit, method, rows, and any `unknown_levels`, as in the response"""
    values: dict[str, np.ndarray]
    """predictions by name"""
    seconds: float
    """computing time of the whole batch, without waiting and parsing"""
    share: float
    """this question's fraction of the rows of the batch"""

    @property
    def size(self) -> int:
        """Number of predicted values."""
        return sum(values.size for values in self.values.values())


def load(rows, *, uncertain: bool, levels: int = 0) -> int:
    """Return the computing cost of `rows` points, in units of one prediction at an exact point.

    An uncertain point costs as much as all of its Monte Carlo draws (more where its moments have a closed form and
    there are many query points). Every `LEVELS` quantile levels cost as much as one more prediction.
    """
    return rows * max(DRAWS if uncertain else 1, 1 + levels // LEVELS)


def question(served: ServedState, asked: Points, *, most_rows: int) -> Question:
    """Return the checked question of a JSON request, as `question_of`."""
    how = {"method": asked.method, "quantiles": asked.quantiles, "intervals": asked.intervals, "inputs": asked.inputs}
    companions = {name: getattr(asked, name) for name in OF_NEW_ROWS}
    refuse_many(asked.count, most_rows)
    X: Any = asked.X
    if asked.rows is not None:
        with served.using() as loaded:
            X = inputs_of(loaded.snapshot.model, asked.rows)
    return question_of(served, X, asked.columns, asked.X_variance, most_rows=most_rows, companions=companions, **how)


def question_of(
    served: ServedState,
    X,
    columns,
    X_variance,
    *,
    most_rows: int,
    method,
    inputs,
    quantiles,
    intervals,
    companions: dict,
) -> Question:
    """Return a checked question, with its points in the model's column order.

    Raises
    ------
    InvalidData
        The points do not fit the model.
    Refused
        There are more than `most_rows` rows.
    """
    refuse_many(len(X), most_rows)
    refuse_certain(X_variance, inputs)
    if X_variance is not None:
        refuse_many(len(X), most_rows // load(1, uncertain=True), "whose inputs are uncertain ")
    with served.using() as loaded:
        model = loaded.snapshot.model
        order = taken_columns(model, X, columns)
        points = new_inputs(model, table(X)[:, order])
        refuse_impossible(model, points)
        unknown = model.schema.coding.unknown_levels(points) if model.schema.coding else {}
    variance = None if X_variance is None else _taken(checked_variance(X_variance, len(X), len(X[0])), order)
    edges = {f"{side}{_percent(mass)}": _edge(mass, side) for mass in intervals for side in ("lower", "upper")}
    return Question(points, method, tuple(quantiles), edges, companions, variance, inputs, unknown)


def answered(served: ServedState, questions: Sequence[Question]) -> list[Predicted]:
    """Compute questions with equal `way` together.

    Predictions are named as in `GBCM.predict`, with a standard deviation for each variance, and `lower90`, `upper90`
    for an interval of mass 0.9.

    Raises
    ------
    InvalidData, InvalidOption
    """
    return served.ask(lambda loaded: answered_by(loaded, served.name, questions))


def answered_by(loaded: Loaded, name: str, questions: Sequence[Question]) -> list[Predicted]:
    """Compute questions as `answered`, with one loaded state of the model."""
    first, X = questions[0], np.concatenate([one.X for one in questions])
    variances = [one.X_variance for one in questions if one.X_variance is not None]
    uncertain = {"X_variance": np.concatenate(variances) if variances else None, "inputs": first.inputs}
    start = time.perf_counter()
    method, found = loaded.predict(X, method=first.method, quantiles=first.levels, **uncertain, **first.companions)
    seconds = time.perf_counter() - start
    summary = {"model": name, "commit": loaded.state, "method": method}
    named = with_deviations(found)
    ends = np.cumsum([len(one.X) for one in questions])
    return [
        Predicted(
            summary | {"rows": len(one.X)} | ({"unknown_levels": one.unknown} if one.unknown else {}),
            _shown(one, named, slice(end - len(one.X), end)),
            seconds,
            len(one.X) / len(X),
        )
        for one, end in zip(questions, ends.tolist(), strict=True)
    ]


def _shown(asked, found, rows):
    """Return the requested predictions at a slice of rows, by name."""
    requested = {f"quantile{level:g}" for level in asked.quantiles}
    shown = {n: v[rows] for n, v in found.items() if not n.startswith("quantile") or n in requested}
    return shown | {name: found[f"quantile{level:g}"][rows] for name, level in asked.edges.items()}


def with_deviations(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add a standard deviation (`sd` in the name) for each variance."""
    return found | {name.replace("variance", "sd"): np.sqrt(found[name]) for name in found if "variance" in name}


def _percent(mass):
    return f"{100.0 * mass:g}"


def _edge(mass, side):
    """Return the quantile level of one end of a central interval.

    Rounded to 12 digits: two levels that differ by rounding error would have the same name.
    """
    tail = round(0.5 * (1.0 - mass), 12)
    return tail if side == "lower" else round(1.0 - tail, 12)


def table(X) -> np.ndarray:
    """Convert rows of numbers to an array (n, D).

    Raises
    ------
    InvalidData
        Rows have different lengths.
    """
    width = len(X[0])
    odd = next((k for k, row in enumerate(X) if len(row) != width), None)
    if odd is not None:
        raise InvalidData(f"X: expected {width} numbers in each row, got {len(X[odd])} in row {odd}; correct it")
    return np.asarray(X, dtype=float)


def taken_columns(model: Model, X, columns) -> Sequence[int] | slice:
    """Return the positions in X of the model's columns, by name.

    Raises
    ------
    InvalidData
        Names are missing or repeated, or the training data had none.
    """
    if columns is None:
        return slice(None)
    width = len(X[0])
    if len(columns) != width or len(set(columns)) != width:
        raise InvalidData(f"columns: expected {width} different names, one for each column of X; correct them")
    if not model.schema.columns:
        raise InvalidData("columns: expected none, the columns of the training data had no names; leave them out")
    return list(taken(Schema(tuple(columns)), model.schema, "X")) or slice(None)


def refuse_lag(served: Served, most: int) -> None:
    """Raise `Refused` (503) while `most` or more rows wait to be committed: senders should slow down."""
    waiting = served.waiting_rows
    if waiting >= most:
        raise Refused(
            503,
            "Behind",
            f"rows: expected fewer than {most} rows that wait to be committed, there are {waiting}; send these again, "
            "under the same key, when some are",
            Retry_After="5",
        )


def submit(served: Served, key: str, asked: NewRows, *, most_rows: int) -> tuple[dict, Future]:
    """Store the rows of a request and queue them for the model, as `Served.submit`."""
    refuse_many(asked.count, most_rows)
    y: Sequence[float | str] | None = asked.y
    with served.using() as loaded:
        model = loaded.snapshot.model
        if asked.rows is None:
            X = table(asked.X)
        else:
            X, y = inputs_of(model, asked.rows), target_of(model, asked.rows) if y is None else y
        width, order = X.shape[1], taken_columns(model, X, asked.columns)
        X = X[:, order]
        refuse_impossible(model, X)
    if y is None:
        raise InvalidData("y: expected a target for each row of X, got none; give them")
    values = {name: getattr(asked, name) for name in COMPANIONS}
    for name, column in {"y": y, **values}.items():
        if column is not None and len(column) != len(X):
            raise InvalidData(f"{name}: expected {len(X)} values, one for each row of X, got {len(column)}; correct it")
    companions = {name: column for name, column in values.items() if column is not None}
    if asked.X_variance is not None:
        companions["X_variance"] = _taken(checked_variance(asked.X_variance, len(X), width), order)
    return served.submit(key, X, y, **companions)


def _taken(variance, order):
    """Select and reorder columns of variances (n, D) or covariances (n, D, D)."""
    return variance[:, order] if variance.ndim == 2 else variance[:, order][:, :, order]


def refuse_many(rows: int, most: int, which="") -> None:
    """Raise `Refused` (413) if a request has more than `most` rows."""
    if rows > most:
        text = f"X: expected at most {most} rows {which}in a request, got {rows}; send them in several"
        raise Refused(413, "TooManyRows", text)


MOST_ROWS = 4096  # in a batch: so few that a request waits little longer than for its own prediction


class MicroBatcher:
    """Queues of questions, computed one batch at a time per model or commit; used in one event loop.

    A question whose client has disconnected is dropped, unless it is being computed. If a batch fails, its questions
    are computed one by one, so that a failing question does not affect the others.
    """

    def __init__(self, limiter: anyio.CapacityLimiter):
        self._limiter = limiter
        self._waiting: dict[ServedState, collections.deque[tuple[Question, asyncio.Future]]] = {}
        """queue of each model with open questions; each such model has a task"""
        self._tasks: set[asyncio.Task] = set()

    async def ask(self, served: ServedState, question: Question) -> Predicted:
        """Queue a question and wait for its predictions.

        Raises
        ------
        InvalidData, InvalidOption, or any other error of the prediction
        """
        done = asyncio.get_running_loop().create_future()
        asked = served in self._waiting
        self._waiting.setdefault(served, collections.deque()).append((question, done))
        if not asked:
            task = asyncio.create_task(self._answer(served))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def _answer(self, served):
        """Compute batches for one model until its queue is empty."""
        try:
            while batch := _batch(self._waiting[served]):
                await self._compute(served, batch)
        finally:
            del self._waiting[served]

    async def _compute(self, served, batch):
        questions = [question for question, _ in batch]
        try:
            found = await anyio.to_thread.run_sync(answered, served, questions, limiter=self._limiter)
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    await self._compute(served, [one])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, done), answer in zip(batch, found, strict=True):
            if not done.done():
                done.set_result(answer)


def _batch(waiting: collections.deque) -> list:
    """Remove the next batch from a queue and return it.

    A batch is the first question and later ones with the same `way`, up to a load of `MOST_ROWS`. The other questions
    keep their order; those whose client has disconnected are dropped.
    """
    batch: list[tuple[Question, asyncio.Future]] = []
    load, left = 0, []
    for question, done in waiting:
        if done.done():
            continue
        if not batch or (question.way == batch[0][0].way and load + question.load <= MOST_ROWS):
            batch.append((question, done))
            load += question.load
        else:
            left.append((question, done))
    waiting.clear()
    waiting.extend(left)
    return batch
