"""Surprise: how much worse than it expected itself a model has predicted what arrives, and since when.

A predictive distribution says how well it will do. A number that lies at the point u of its own distribution has the
normal score z = Phi^-1(u), of which z^2 is 1 on average, whatever the likelihood; a class of probability p costs
-log p, on average the entropy. The *surprise* of a row is what it cost beyond that, (z^2 - 1) / 2 or -log p - entropy,
in nats. So a committee that has absorbed little, and says so, is not surprised by what it gets wrong.

No model is quite right, so arrivals are compared with how surprising the partitions were that were absorbed before
them, each under the belief of all others (a message is withdrawn exactly): what the model would have said of them, had
they arrived then. That is known before the first arrival, holds no row of the stream, and stays as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from bcmdist.prediction.scoring.pit import Places
from bcmdist.storage.ledger import RUNNING, Entry

# A single row cannot cost more: normal scores end here, and log losses where (z^2 - 1) / 2 does, about.
LARGEST_Z = 4.0
LARGEST_LOSS = 8.0
# Least variance of the surprise of a row. That of (z^2 - 1) / 2 is 1/2; classes that a model is sure of would have
# almost none, and one error in hundreds of rows would be news.
LEAST_VARIANCE = 0.25
# Partitions whose surprise was expected as that of so many more: few that were withheld could agree by chance.
PRIOR_PARTITIONS = 10.0
# Variance of arrivals, in units of what the model says, where nothing could be withheld. Arbitrary.
UNKNOWN_DISPERSION = 4.0
# Partitions that are withheld, at most; a model that had absorbed none when rows began to arrive has absorbed as many
# then.
WITHHELD = 16
# Page's (1954) test: what exceeds the expected by more than SLACK standard deviations adds up, at most LARGEST_STEP per
# partition, and SUM_ALARMED is too much. Two partitions are the fewest that alarm (`alone` tells of one); of a Gaussian
# process that has not changed exp(2 SLACK SUM_ALARMED) is about the number that do not.
SLACK, LARGEST_STEP, SUM_ALARMED = 1.0, 4.5, 8.0


def of_numbers(where: Places) -> tuple[np.ndarray, np.ndarray]:
    """Surprise of numbers, counts and lifetimes, and its variance as the model expects it: (n,) each.

    An observation that lies in a range of probability has the mean of z^2 over that range, 1 - [z phi(z)] / width:
    its expectation is 1 as well.
    """
    low, high = (ndtri(u).clip(-LARGEST_Z, LARGEST_Z) for u in (where.low, where.high))
    width = where.high - where.low
    middle = ndtri(0.5 * (where.low + where.high)).clip(-LARGEST_Z, LARGEST_Z) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = 1.0 - (high * _density(high) - low * _density(low)) / width
    # The difference of two nearly equal numbers says nothing of a narrow range.
    squares = np.where(width > 1e-6, spread.clip(0.0, LARGEST_Z**2), middle)
    return 0.5 * (squares - 1.0), np.full(len(width), 0.5)


def _density(z):
    return np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)


def of_classes(p, y) -> tuple[np.ndarray, np.ndarray]:
    """Surprise of classes y (n,) of probabilities p (n, C), and its variance as the model expects it: (n,) each."""
    loss = np.minimum(-np.log(np.maximum(p, np.finfo(float).tiny)), LARGEST_LOSS)
    entropy = (p * loss).sum(axis=1)
    variance = (p * (loss - entropy[:, None]) ** 2).sum(axis=1)
    own = np.take_along_axis(loss, y[:, None], axis=1)[:, 0]
    return own - entropy, np.maximum(variance, LEAST_VARIANCE)


def totals(rows) -> dict[str, Any]:
    """Totals of what `of_numbers` or `of_classes` says, by name."""
    surprise, variance = rows
    return {"surprise": surprise.sum(), "surprise_variance": variance.sum()}


def noted(t) -> tuple[float, ...]:
    """Mean surprise of the rows of some totals, and its variance as expected; nothing where these are no numbers."""
    n = float(t["rows"])
    found = (float(t["surprise"] / n), float(t["surprise_variance"] / n**2))
    return found if np.all(np.isfinite(found)) else ()


@dataclass(frozen=True)
class Expected:
    """What is expected of arrivals; JSON-ready by `vars`."""

    partitions: int
    """that were withheld; 0: what the model says of itself"""
    surprise: float
    dispersion: float
    """variance of arrivals, in units of what the model says"""
    samples: int = 0
    """of rows that were scored of them"""
    figures: tuple[float, ...] = ()
    """means of what is noted of arrivals (`bcmdist.committee.fading`), of rows withheld"""

    def standardised(self, surprises) -> np.ndarray:
        """How many standard deviations arrivals (n, 2) are above the expected, (n,)."""
        mean, variance = np.asarray(surprises).T
        return (mean - self.surprise) / np.sqrt(self.dispersion * variance)

    @property
    def slack(self) -> float:
        """Standard deviations that arrivals may be above the expected: what is expected is itself known to one in
        the root of the samples only, and an error of that stays."""
        return SLACK + (2.0 / np.sqrt(self.samples) if self.samples else 0.0)


UNKNOWN = Expected(0, 0.0, UNKNOWN_DISPERSION)


def expected(samples: Sequence[Sequence[tuple[tuple[float, ...], tuple[float, ...]]]]) -> Expected:
    """What to expect after some partitions were withheld: samples of rows of each, as (arrival, surprise)."""
    found = [(arrival, surprise) for part in samples for arrival, surprise in part if arrival and surprise]
    if not found:
        return UNKNOWN
    figures, surprises = (np.array(column) for column in zip(*found, strict=True))
    mean, variance = surprises.T
    level = float(mean.mean())
    excess = float(((mean - level) ** 2 / variance).sum())
    dispersion = (PRIOR_PARTITIONS + excess) / (PRIOR_PARTITIONS + max(len(found) - 1, 0))
    if len(samples) == 1:  # by the prior, perhaps, which finds all rows likelier than it says
        return Expected(1, max(level, UNKNOWN.surprise), max(dispersion, UNKNOWN_DISPERSION), len(found))
    return Expected(len(samples), level, dispersion, len(found), tuple(figures.mean(axis=0).tolist()))


def from_facts(known) -> Expected | None:
    """What the fact `expected` of a commit says; None where nothing was withheld yet."""
    return known and Expected(**known | {"figures": tuple(known["figures"])})


def withheld(ledger: Sequence[Entry]) -> list[Entry]:
    """Entries to be compared with: some that were absorbed before the first arrival, evenly spread; where there are
    none, the first arrivals, once there are enough."""
    before = [entry for entry in ledger if entry.at != RUNNING and not entry.arrival]
    if before:
        return [before[k] for k in np.unique(np.linspace(0, len(before) - 1, min(WITHHELD, len(before))).astype(int))]
    return list(ledger[:WITHHELD]) if len(ledger) >= WITHHELD else []


@dataclass(frozen=True)
class Change:
    """A stretch of arrivals that were worse than expected."""

    start: int
    """the first one, from 0 on"""
    stop: int | None
    """the first one after it; None: it goes on"""


def changes(z: Iterable[float], slack=SLACK) -> list[Change]:
    """Where standardised arrivals are worse than expected for long enough (Page 1954, with steps that are bounded)."""
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


def alone(base: Expected, z, among: Iterable[Change]) -> list[int]:
    """Which of standardised arrivals z (n,) are as much worse than expected as takes others together, outside of some
    changes; of a variance that is no less than the model says.

    Simulated: less than 1 % of sequences of 100 that have not changed hold such a one, whether 10 or 50 rows of each
    are scored, whether these are normal or of t with 3 degrees of freedom, or classes of which a model is sure and
    rightly so, whether 1 or 16 partitions were withheld.
    """
    ended = [(change.start, change.stop) for change in among]
    far = np.flatnonzero(z * np.sqrt(min(1.0, base.dispersion)) > base.slack + SUM_ALARMED).tolist()
    return [k for k in far if not any(a <= k and (b is None or k < b) for a, b in ended)]


def _begin(z):
    """Where the likeliest shift of the last of some standardised numbers begins: that of most standard errors."""
    return int(np.argmax(z[::-1].cumsum()[::-1] / np.sqrt(np.arange(len(z), 0, -1))))
