"""Adam on the tied energy, a few rows a step (Kingma & Ba 2015; Bui et al. 2016, section 6; SYSTEMS D7).

    F ~ sum over layers + N/n sum over n rows of 1/p log Z

As many steps are worth far more than evaluations of all rows: of 8,000 rows of kin40k, with 50 centres and two units,
after a minute of one thread, log densities of 2,000 further training rows are -.71 by L-BFGS, and .09 so; of 628 of
Energy with eight units those of rows left out are -2.0 after 600 iterations of L-BFGS, and -.3 so.

A step of `ROWS` rows takes 12 ms, which is about a round to a cluster and back. So it is processes that are climbed
side by side, each by one worker, which keeps the rows, and what comes back after a round of steps is a process further
on. A round that has been finished is found among the scratch by whoever comes after.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.partition import Partition, Span
from bcmdist.data.rows import read_all
from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.objective import DeepObjective, Reached, bounds, joined, slope, split
from bcmdist.methods.deep.row_sums import Shape
from bcmdist.methods.deep.rows import log_densities
from bcmdist.methods.deep.shared import Deep
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

# Rows of a step, at most, steps of an epoch, at least, and steps of a round.
ROWS, EPOCH, ROUND = 500, 4, 200
# Steps in all; over the second half of them the rate falls to nothing.
STEPS = {"quick": 1000, "normal": 5000, "thorough": 20_000}
# Length of a step at first; twice as long a one left kin40k where it began.
RATE = 0.1
# How long Adam remembers slopes and their squares, and what is added to the root of these.
MEMORY, SQUARE_MEMORY, LEAST = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Climber:
    """The numbers of a process, and what Adam remembers of their slopes: (P,) each."""

    numbers: np.ndarray
    first: np.ndarray
    second: np.ndarray
    steps: int = 0
    """so far"""

    @classmethod
    def at(cls, layers: Sequence[Layer]) -> "Climber":
        """One that sets out."""
        numbers = joined(layers)
        return cls(numbers, np.zeros_like(numbers), np.zeros_like(numbers))

    def stepped(self, slope, rate, within) -> "Climber":
        """After a step up a slope (P,)."""
        first = MEMORY * self.first + (1.0 - MEMORY) * slope
        second = SQUARE_MEMORY * self.second + (1.0 - SQUARE_MEMORY) * slope**2
        k = self.steps + 1
        step = first / (1.0 - MEMORY**k) / (np.sqrt(second / (1.0 - SQUARE_MEMORY**k)) + LEAST)
        return Climber(np.clip(self.numbers + rate * step, within.lb, within.ub), first, second, k)

    def to_array(self) -> np.ndarray:
        """All of it, (3 P + 1,)."""
        return np.concatenate([self.numbers, self.first, self.second, [self.steps]])

    @classmethod
    def from_array(cls, array) -> "Climber":
        """What `to_array` wrote."""
        numbers, first, second = np.split(array[:-1], 3)
        return cls(numbers, first, second, int(array[-1]))


@dataclass(frozen=True)
class Further:
    """What became of processes, by their number; such add."""

    by_process: dict[int, np.ndarray]

    def __add__(self, other: "Further") -> "Further":
        return Further(self.by_process | other.by_process)


@dataclass(frozen=True)
class AdamRound:
    """A round of steps of each process; spans number them."""

    scaling: BlobReference
    climbers: tuple[BlobReference, ...]
    """of `Climber.to_array`"""
    shapes: tuple[Shape, ...]
    part: Partition
    """all rows"""
    likelihood: Likelihood
    powers: tuple[float, ...]
    classes: tuple[float, ...] | None
    size: int
    """rows of a step"""
    until: int
    """step of each after which the round ends"""
    steps: int
    """in all"""

    def __call__(self, span, _) -> Further:
        k = span.start
        X, obs = self._rows()
        climber, like = Climber.from_array(load_array(self.climbers[k])), [Layer.of_shape(*one) for one in self.shapes]
        sound, within = climber, bounds(like)
        while climber.steps < self.until:
            rows = drawn(climber.steps, len(X), self.size, k)
            uphill = self._slope(split(climber.numbers, like), X, obs, rows, self.powers[k])
            if uphill is None:
                climber = replace(sound, first=np.zeros_like(sound.first), steps=climber.steps + 1)
            else:
                sound, climber = climber, climber.stepped(uphill, rate(climber.steps, self.steps), within)
        return Further({k: climber.to_array()})

    def _rows(self):
        scaling = load_scaling(self.scaling)
        ((_, rows),) = read_all([self.part])
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        return scaling.inputs(rows.X), obs

    def _slope(self, layers, X, obs, rows, power) -> np.ndarray | None:
        """Of the energy in the numbers of the layers, of some rows; None where a step went too far."""
        sites = len(X) / power
        try:
            stages = [layer.stage(1.0 - 1.0 / sites) for layer in layers]
            _, pulls = log_densities(stages, X[rows], obs[rows], self.likelihood, power)
            found = slope(layers, sites, [pull.times(len(X) / len(rows)) for pull in pulls])
        except (NotPositiveDefinite, np.linalg.LinAlgError):
            return None
        return found if np.isfinite(found).all() else None


def few(rows) -> int:
    """How many of all rows a step takes."""
    return min(ROWS, -(-rows // EPOCH))


def rate(done, steps) -> float:
    """Length of the step after so many of all."""
    return RATE * min(1.0, 2.0 * (1.0 - done / steps))


def drawn(done, rows, size, process) -> np.ndarray:
    """A few of all rows, for the step after so many: each epoch in an order of its own."""
    of_epoch = -(-rows // size)
    epoch, turn = divmod(done, of_epoch)
    return np.random.default_rng([epoch, process]).permutation(rows)[turn::of_epoch]


@dataclass(frozen=True)
class Climb:
    """Processes that set out together, one for each power."""

    objectives: Sequence[DeepObjective]
    start: Deep
    steps: int
    """in all"""

    def further(self, climbers: Sequence[Climber]) -> list[Climber]:
        """After a round, or what a process that was killed has found after it."""
        first, powers = self.objectives[0], tuple(one.power for one in self.objectives)
        done = climbers[0].steps

        def climb():
            ground, shapes = first.ground, tuple((*one.centres.shape, one.units) for one in self.start.layers)
            whole = replace(first.parts[0], stop=first.parts[-1].stop)
            steps = few(first.rows), min(done + ROUND, self.steps), self.steps
            how = shapes, whole, first.likelihood, powers, ground.classes, *steps
            with ground.transient({f"process {k}": one.to_array() for k, one in enumerate(climbers)}) as references:
                task = AdamRound(ground.scaling, tuple(references.values()), *how)
                found = ground.sum(task, [Span(k, k + 1) for k in range(len(climbers))])
            return {str(k): found.by_process[k] for k in range(len(climbers))}

        kept = first.once(["Adam", powers, self.steps, done], self.start.layers, climb)
        return [Climber.from_array(kept[str(k)]) for k in range(len(climbers))]


def climbed_jointly(
    objectives: Sequence[DeepObjective], start: Deep, held: Sequence[Partition], steps
) -> list[Reached]:
    """The best that rounds of steps come to, by rows that were left out, of a process for each objective."""
    climb, first = Climb(objectives, start, steps), objectives[0]
    climbers, best = [Climber.at(start.layers)] * len(objectives), [(-np.inf, start)] * len(objectives)
    while climbers[0].steps < steps:
        climbers = climb.further(climbers)
        there = [replace(start, layers=tuple(split(one.numbers, start.layers))) for one in climbers]
        now = [(first.density(one.layers, held), one) for one in there]
        best = [max(pair, key=lambda found: found[0]) for pair in zip(now, best, strict=True)]
    passes = -(-steps * few(first.rows) // first.rows)
    return [objective.reached(at, held, passes) for objective, (_, at) in zip(objectives, best, strict=True)]
