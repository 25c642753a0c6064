"""Train layers by Adam on the tied energy, with a minibatch of rows per step (Kingma & Ba 2015; SYSTEMS D7).

    F ~ sum over layers + N/n sum over n rows of 1/p log Z

(Bui et al. 2016, section 6.) In equal time, many steps on few rows reach a far better energy than evaluations of all
rows by L-BFGS.

No step length suits all data: at the longer of `RATES` training may lose what the initial layers explain and not
recover, at the shorter one it may end far from the optimum. Each process is therefore trained at both, and left-out
rows select one.

A step of `ROWS` rows takes about as long as a round trip to a cluster. Parallelism is therefore over processes and over
groups of at most `GROUP` rows: in a round, each group makes many steps from the same state, and the new states of a
process are averaged (local stochastic descent: Stich 2019, algorithm 1). The result depends on the number of groups,
hence on the number of rows, but not on the number of workers. Finished rounds are stored in the scratch directory, from
which an interrupted fit continues.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bcmdist.data.partition import Partition, Span
from bcmdist.data.rows import read_all
from bcmdist.errors import NotPositiveDefinite
from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.objective import Candidate, DeepObjective, Reached, bounds, joined, slope, split
from bcmdist.methods.deep.row_sums import Shape
from bcmdist.methods.deep.rows import log_densities
from bcmdist.methods.deep.shared import Deep
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference, load_array

# Largest number of rows per step, smallest number of steps per epoch, and steps per round.
ROWS, EPOCH, ROUND = 500, 4, 200
GROUP = 50_000  # largest number of rows per group
# Total number of steps at each rate; over the second half of them the rate falls to 0.
STEPS = {"quick": 500, "normal": 2500, "thorough": 10_000}
# Initial step lengths; the first one where no rows are left out.
RATES = (0.03, 0.1)
# Decay rates of Adam's means of slopes and of their squares, and the constant added to the root of the latter.
MEMORY, SQUARE_MEMORY, LEAST = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Climber:
    """The parameters of a process and Adam's moments of their slopes: (P,) each."""

    numbers: np.ndarray
    first: np.ndarray
    second: np.ndarray
    steps: int = 0
    """number of steps made"""

    @classmethod
    def at(cls, layers: Sequence[Layer]) -> "Climber":
        """Initial state for the given layers."""
        numbers = joined(layers)
        return cls(numbers, np.zeros_like(numbers), np.zeros_like(numbers))

    def stepped(self, slope, rate, within) -> "Climber":
        """State after one step along a slope (P,), within bounds."""
        first = MEMORY * self.first + (1.0 - MEMORY) * slope
        second = SQUARE_MEMORY * self.second + (1.0 - SQUARE_MEMORY) * slope**2
        k = self.steps + 1
        step = first / (1.0 - MEMORY**k) / (np.sqrt(second / (1.0 - SQUARE_MEMORY**k)) + LEAST)
        return Climber(np.clip(self.numbers + rate * step, within.lb, within.ub), first, second, k)

    @classmethod
    def average(cls, each: Sequence["Climber"]) -> "Climber":
        """Mean of states after the same number of steps."""
        return cls.from_array(np.mean([one.to_array() for one in each], axis=0))

    def to_array(self) -> np.ndarray:
        """Store in one vector (3 P + 1,); inverse of `from_array`."""
        return np.concatenate([self.numbers, self.first, self.second, [self.steps]])

    @classmethod
    def from_array(cls, array) -> "Climber":
        """Restore from the result of `to_array`."""
        numbers, first, second = np.split(array[:-1], 3)
        return cls(numbers, first, second, int(array[-1]))


@dataclass(frozen=True)
class Further:
    """States after a round, by the number of the span; objects add."""

    by_span: dict[int, np.ndarray]

    def __add__(self, other: "Further") -> "Further":
        return Further(self.by_span | other.by_span)


@dataclass(frozen=True)
class AdamRound:
    """Task: one round of steps of one process on one group of rows; span k is group k % G of process k // G."""

    scaling: BlobReference
    climbers: tuple[BlobReference, ...]
    """arrays of `Climber.to_array`, one per process"""
    shapes: tuple[tuple[Shape, ...], ...]
    """shapes of the layers of each process"""
    groups: tuple[Partition, ...]
    """(G,) the training rows"""
    likelihood: Likelihood
    powers: tuple[float, ...]
    rates: tuple[float, ...]
    """initial step length of each process"""
    classes: tuple[float, ...] | None
    size: int
    """rows per step"""
    until: int
    """step at which the round ends"""
    steps: int
    """total number of steps"""

    def __call__(self, span, _) -> Further:
        k = span.start
        process, group = divmod(k, len(self.groups))
        X, obs = self._rows(self.groups[group])
        climber = Climber.from_array(load_array(self.climbers[process]))
        like = [Layer.of_shape(*one) for one in self.shapes[process]]
        sound, within = climber, bounds(like)
        while climber.steps < self.until:
            rows = drawn(climber.steps, len(X), self.size, k)
            uphill = self._slope(split(climber.numbers, like), X, obs, rows, self.powers[process])
            if uphill is None:
                climber = replace(sound, first=np.zeros_like(sound.first), steps=climber.steps + 1)
            else:
                length = self.rates[process] * decay(climber.steps, self.steps)
                sound, climber = climber, climber.stepped(uphill, length, within)
        return Further({k: climber.to_array()})

    def _rows(self, group):
        scaling = load_scaling(self.scaling)
        ((_, rows),) = read_all([group])
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X)
        return scaling.inputs(rows.X), obs

    def _slope(self, layers, X, obs, rows, power) -> np.ndarray | None:
        """Gradient of the energy in the parameters of the layers, from some rows; None if it cannot be computed."""
        count = sum(group.rows for group in self.groups)
        sites = count / power
        try:
            stages = [layer.stage(1.0 - 1.0 / sites) for layer in layers]
            _, pulls = log_densities(stages, X[rows], obs[rows], self.likelihood, power)
            found = slope(layers, sites, [pull.times(count / len(rows)) for pull in pulls])
        except (NotPositiveDefinite, np.linalg.LinAlgError):
            return None
        return found if np.isfinite(found).all() else None


def few(rows) -> int:
    """Number of rows per step."""
    return min(ROWS, -(-rows // EPOCH))


def groups_of(rows) -> int:
    """Number of groups of training rows."""
    return -(-rows // GROUP)


def decay(done, steps) -> float:
    """Share of the initial step length after `done` of `steps` steps."""
    return min(1.0, 2.0 * (1.0 - done / steps))


def drawn(done, rows, size, span) -> np.ndarray:
    """Row numbers of the minibatch after `done` steps; each epoch of each span has its own order."""
    of_epoch = -(-rows // size)
    epoch, turn = divmod(done, of_epoch)
    return np.random.default_rng([epoch, span]).permutation(rows)[turn::of_epoch]


@dataclass(frozen=True)
class Climb:
    """Joint training of processes, each with a start, an objective and an initial step length."""

    starts: Sequence[Deep]
    objectives: Sequence[DeepObjective]
    rates: tuple[float, ...]
    steps: int
    """total number of steps"""

    @cached_property
    def groups(self) -> list[Partition]:
        """Groups of training rows, about equally large."""
        parts = self.objectives[0].parts
        ends = np.linspace(0, len(parts), min(groups_of(self.objectives[0].rows), len(parts)) + 1).astype(int)
        return [replace(parts[a], stop=parts[b - 1].stop) for a, b in itertools.pairwise(ends)]

    @property
    def size(self) -> int:
        """Number of rows per step."""
        return few(min(group.rows for group in self.groups))

    def further(self, climbers: Sequence[Climber]) -> list[Climber]:
        """States after another round, or the stored ones if an interrupted fit has finished this round."""
        first, powers = self.objectives[0], tuple(one.power for one in self.objectives)
        done, initial = climbers[0].steps, [layer for start in self.starts for layer in start.layers]

        def climb():
            context = first.context
            shapes = tuple(tuple(layer.shape for layer in start.layers) for start in self.starts)
            steps = self.size, min(done + ROUND, self.steps), self.steps
            how = shapes, tuple(self.groups), first.likelihood, powers, self.rates, context.classes, *steps
            with context.transient({f"process {k}": one.to_array() for k, one in enumerate(climbers)}) as references:
                task = AdamRound(context.scaling, tuple(references.values()), *how)
                each = len(self.groups)
                found = context.sum(task, [Span(k, k + 1) for k in range(len(climbers) * each)]).by_span
            states = [Climber.from_array(found[k]) for k in sorted(found)]
            means = [Climber.average(states[k : k + each]) for k in range(0, len(states), each)]
            return {str(k): mean.to_array() for k, mean in enumerate(means)}

        kept = first.once(["Adam", powers, self.rates, self.steps, done], initial, climb)
        return [Climber.from_array(kept[str(k)]) for k in range(len(climbers))]


def climbed_jointly(
    starts: Sequence[Deep], objectives: Sequence[DeepObjective], held: Sequence[Partition], steps
) -> list[Reached]:
    """Train each start by its objective at all rates, and return the best state of each.

    That is the best by `DeepObjective.evaluate` of those after each round, and of the start. The start is evaluated
    after the first round, as the tasks of a round, with which `--plan` measures training, come first.
    """
    rates = RATES if held else RATES[:1]
    starts_by_rate = [start for start in starts for _ in rates]
    objectives_by_rate = [objective for objective in objectives for _ in rates]
    climb = Climb(starts_by_rate, objectives_by_rate, rates * len(objectives), steps)
    climbers = [Climber.at(start.layers) for start in starts_by_rate]
    best: list[Candidate] = []
    while climbers[0].steps < steps:
        climbers = climb.further(climbers)
        best = best or [objective.evaluate(start, held) for objective, start in zip(objectives, starts, strict=True)]
        now = [
            objective.evaluate(replace(start, layers=tuple(split(one.numbers, start.layers))), held)
            for objective, one, start in zip(objectives_by_rate, climbers, starts_by_rate, strict=True)
        ]
        by_objective = [now[k : k + len(rates)] for k in range(0, len(now), len(rates))]
        best = [
            max((*some, one), key=lambda found: found.density) for some, one in zip(by_objective, best, strict=True)
        ]
    passes = -(-steps * climb.size * len(climb.groups) * len(rates) // objectives[0].rows)
    return [objective.reached(at, passes) for objective, at in zip(objectives, best, strict=True)]
