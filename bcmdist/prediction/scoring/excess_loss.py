"""Excess loss: how much worse a model predicts arriving rows than it expects to, and change detection on it.

A predictive distribution implies its own expected score. A number at the point u of its predictive distribution has the
normal score z = Phi^-1(u), and z^2 is 1 on average for any likelihood. A class of probability p costs -log p, on
average the entropy. The excess loss of a row is its cost minus this expectation, (z^2 - 1) / 2 or -log p -
entropy, in nats. A committee that has absorbed little and predicts with large uncertainty therefore has no excess loss
when its errors are large.

No model is quite right, so arrivals are compared with the excess loss of partitions absorbed before them, each
predicted by the committee without that partition (a message is withdrawn exactly). This baseline is available before
the first arrival, holds no rows of the stream, and does not change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from bcmdist.committee.facts import ExpectedLoss
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.special import ndtri
from bcmdist.prediction.scoring.pit import Places
from bcmdist.storage.entry import RUNNING, Entry

# Upper limits for a single row: of normal scores, and of log losses at about (LARGEST_Z^2 - 1) / 2.
LARGEST_Z = 4.0
LARGEST_LOSS = 8.0
# Least variance of the excess loss of a row. For numbers, (z^2 - 1) / 2 has variance 1/2. For classes that a model is
# sure of it would be almost zero, and one error in hundreds of rows would raise an alarm.
LEAST_VARIANCE = 0.25
# Prior weight of a dispersion of 1, in samples: a few withheld partitions could agree by chance.
PRIOR_PARTITIONS = 10.0
# Dispersion of arrivals, in units of the model's variance, if nothing could be withheld. Arbitrary.
UNKNOWN_DISPERSION = 4.0
# Largest number of partitions to withhold. A model that had absorbed none before rows began to arrive uses this many of
# its first arrivals.
WITHHELD = 16
# Page's (1954) test: excesses over the baseline of more than SLACK standard deviations are summed, at most LARGEST_STEP
# per partition; a sum above SUM_ALARMED is an alarm. An alarm needs at least two partitions (`outliers` finds
# single ones). For an unchanged Gaussian process, about exp(2 SLACK SUM_ALARMED) partitions pass before a false alarm.
SLACK, LARGEST_STEP, SUM_ALARMED = 1.0, 4.5, 8.0


def of_numbers(where: Places) -> tuple[FloatArray, FloatArray]:
    """Excess loss of numbers, counts and lifetimes, and its variance under the model, (n,) each.

    For an observation known to lie in a range of probability, z^2 is replaced by its mean over that range, 1 - [z
    phi(z)] / width, whose expectation is also 1.
    """
    low, high = (ndtri(u).clip(-LARGEST_Z, LARGEST_Z) for u in (where.low, where.high))
    width = where.high - where.low
    middle = ndtri(0.5 * (where.low + where.high)).clip(-LARGEST_Z, LARGEST_Z) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        within = 1.0 - (high * _density(high) - low * _density(low)) / width
    # For a narrow range the difference loses all digits: use the midpoint.
    squares = np.where(width > 1e-6, within.clip(0.0, LARGEST_Z**2), middle)
    return 0.5 * (squares - 1.0), np.full(len(width), 0.5)


def _density(z: FloatArray) -> FloatArray:
    density: FloatArray = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return density


def of_classes(p: FloatArray, y: IntArray) -> tuple[FloatArray, FloatArray]:
    """Excess loss of classes y (n,) with probabilities p (n, C), and its variance under the model, (n,) each."""
    loss = np.minimum(-np.log(np.maximum(p, np.finfo(float).tiny)), LARGEST_LOSS)
    entropy = (p * loss).sum(axis=1)
    variance = (p * (loss - entropy[:, None]) ** 2).sum(axis=1)
    own = np.take_along_axis(loss, y[:, None], axis=1)[:, 0]
    return own - entropy, np.maximum(variance, LEAST_VARIANCE)


def totals(rows: tuple[FloatArray, FloatArray]) -> dict[str, Any]:
    """Totals, by name, of the result of `of_numbers` or `of_classes`."""
    loss, variance = rows
    return {"excess_loss": loss.sum(), "excess_loss_variance": variance.sum()}


def mean_with_variance(t: Mapping[str, Any]) -> tuple[float, ...]:
    """Mean excess loss of the rows in some totals and its variance under the model; empty if not finite."""
    n = float(t["rows"])
    found = (float(t["excess_loss"] / n), float(t["excess_loss_variance"] / n**2))
    return found if np.all(np.isfinite(found)) else ()


@dataclass(frozen=True)
class Expected:
    """Baseline for the excess loss of arrivals; stored as the fact `expected`."""

    partitions: int
    """number of withheld partitions; 0: the baseline is the model's own expectation"""
    mean: float
    """mean excess loss"""
    dispersion: float
    """variance of the excess loss of arrivals, in units of the model's variance"""
    samples: int = 0
    """number of row samples scored in the withheld partitions"""
    figures: tuple[float, ...] = ()
    """means, over withheld rows, of the figures recorded for arrivals (`bcmdist.committee.fading`)"""

    def standardised(self, losses: ArrayLike) -> FloatArray:
        """Standard deviations by which arrivals (n, 2), as (mean, variance), exceed the baseline, (n,)."""
        mean, variance = np.asarray(losses).T
        errors: FloatArray = (mean - self.mean) / np.sqrt(self.dispersion * variance)
        return errors

    @property
    def slack(self) -> float:
        """Standard deviations by which arrivals may exceed the baseline.

        `SLACK` and two standard errors of the baseline, whose error does not average out over arrivals.
        """
        return SLACK + (2.0 / np.sqrt(self.samples) if self.samples else 0.0)


UNKNOWN = Expected(0, 0.0, UNKNOWN_DISPERSION)


def expected(samples: Sequence[Sequence[tuple[tuple[float, ...], tuple[float, ...]]]]) -> Expected:
    """Baseline from withheld partitions; `samples` holds (arrival, excess loss) figures of row samples by partition."""
    found = [(scores, loss) for part in samples for scores, loss in part if scores and loss]
    if not found:
        return UNKNOWN
    figures, losses = (np.array(column) for column in zip(*found, strict=True))
    mean, variance = losses.T
    level = float(mean.mean())
    excess = float(((mean - level) ** 2 / variance).sum())
    dispersion = (PRIOR_PARTITIONS + excess) / (PRIOR_PARTITIONS + max(len(found) - 1, 0))
    if len(samples) == 1:  # possibly predicted by the prior alone, too cautiously
        return Expected(1, max(level, UNKNOWN.mean), max(dispersion, UNKNOWN_DISPERSION), len(found))
    return Expected(len(samples), level, dispersion, len(found), tuple(figures.mean(axis=0).tolist()))


def from_facts(fact: ExpectedLoss | None) -> Expected | None:
    """Baseline from the fact `expected` of a commit; None if nothing has been withheld yet."""
    if fact is None:
        return None
    return Expected(**msgspec.structs.asdict(fact) | {"figures": tuple(fact.figures)})


def withheld(ledger: Sequence[Entry]) -> list[Entry]:
    """Ledger entries to withhold for the baseline.

    Up to `WITHHELD` evenly spaced entries absorbed before the first arrival. Without such entries, the first `WITHHELD`
    arrivals once there are as many, else none.
    """
    entries = [entry for entry in ledger if not entry.compacted]
    before = [entry for entry in entries if entry.at != RUNNING and not entry.arrival]
    if before:
        return [before[k] for k in np.unique(np.linspace(0, len(before) - 1, min(WITHHELD, len(before))).astype(int))]
    return entries[:WITHHELD] if len(entries) >= WITHHELD else []


@dataclass(frozen=True)
class Change:
    """A range of consecutive arrivals that were predicted worse than expected."""

    start: int
    """position of the first such arrival, from 0"""
    stop: int | None
    """position after the last one; None: not ended"""


def changes(z: Iterable[float], slack: float = SLACK) -> list[Change]:
    """Ranges in which standardised arrivals are persistently worse than expected (Page 1954, with bounded steps)."""
    bounded = np.minimum(np.asarray(list(z)), slack + LARGEST_STEP)
    found: list[Change] = []
    total, start, alarmed = 0.0, 0, False
    for number, value in enumerate(bounded):
        if total <= 0.0:
            start = number
        total = min(max(0.0, total + value - slack), 2.0 * SUM_ALARMED)
        if total > SUM_ALARMED and not alarmed:
            found.append(Change(start + _begin(bounded[start : number + 1]), None))
            alarmed = True
        elif total <= 0.0 and alarmed:
            found[-1] = Change(found[-1].start, number + 1)
            alarmed = False
    return found


def outliers(base: Expected, z: FloatArray, among: Iterable[Change]) -> list[int]:
    """Positions of single standardised arrivals z (n,) that reach the alarm level by themselves, outside `among`.

    The variance used is at least that of the model. Fewer than 1 % of unchanged sequences of 100 partitions contain a
    false alarm.
    """
    ended = [(change.start, change.stop) for change in among]
    far = np.flatnonzero(z * np.sqrt(min(1.0, base.dispersion)) > base.slack + SUM_ALARMED).tolist()
    return [k for k in far if not any(a <= k and (b is None or k < b) for a, b in ended)]


def _begin(z: FloatArray) -> int:
    """Start of the most likely shift among those that last to the end of z: that of most standard errors."""
    return int(np.argmax(z[::-1].cumsum()[::-1] / np.sqrt(np.arange(len(z), 0, -1))))
