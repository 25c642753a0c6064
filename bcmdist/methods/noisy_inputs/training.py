"""Learning where inputs were seen with errors (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

It begins where learning from the inputs as they were seen has ended, with too much noise of targets, and goes on in
rounds: partitions find their inputs at the hyper-parameters of the moment, then these
climb the evidence of all partitions on their own at the inputs found. Whatever the way, messages are averaged over
draws of inputs (`bcmdist.methods.noisy_inputs.expert`).

    clean   inputs of highest density; the noise is lowered from round to round, which the thesis ends where the noise
            is known to be (4.3.1.2). Here rows that are left out say where they are predicted best.
    hmc     draws of inputs; the noise is learned, too, and, where nobody says what errors inputs have, one variance of
            these for each column: the mean square of the draws' errors. The logarithms of the last rounds are averaged
            (4.3.2)

Where inputs were seen, their errors may look like a rough function, which no round finds out of: so there are other
beginnings, of longer lengthscales. The one counts at whose end rows that are left out are predicted best (clean), or
the evidence, with inputs averaged over, is highest (hmc).

What is learned are hyper-parameters: each partition then finds its inputs by itself when it is heard
(`bcmdist.methods.noisy_inputs`), those that arrive later likewise.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.point import Point, moved, theta_of
from bcmdist.learning.search import polish
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.noisy_inputs.evidence import (
    AveragedEvidence,
    Cleaning,
    Drawing,
    InputTrial,
    Versions,
    VersionsEvidence,
)
from bcmdist.methods.noisy_inputs.expert import CLEAN, NormalErrors
from bcmdist.methods.noisy_inputs.map_inputs import COOLING
from bcmdist.methods.noisy_inputs.posterior import NOISE
from bcmdist.model.model import described

HELD = f"likelihood.{NOISE}"  # while cleaning: free, it would shrink until all rows are fitted
# Rows that are looked at, in evenly spread partitions, about.
ROWS = {"quick": 1000, "normal": 2000, "thorough": 5000}
# Levels of the noise at most, turns of inputs and hyper-parameters at each, iterations of either, and levels in a row
# after which no better one is expected.
LEVELS, TURNS, CLEANING_STEPS, CLIMBING_STEPS, PATIENCE = 12, 3, 20, 10, 2
# Rounds of draws by effort, of which the last half is averaged; draws of a round, and trajectories before the first.
ROUNDS = {"quick": 10, "normal": 20, "thorough": 40}
DRAWS, BURN_IN = 10, 30
# Standard deviation, of scaled inputs, at which errors that are learned begin: from .05, where .17 is right, a chain
# needs some 20 rounds, from .3 five.
FIRST_ERROR = 0.3
# Beginnings by effort: lengthscales no shorter than so many sqrt(D) standard deviations of inputs.
SHORTEST = {"quick": (0.0,), "normal": (0.0, 0.5, 1.0), "thorough": (0.0, 0.25, 0.5, 1.0)}
# Noise at which cleaning begins where nothing is learned, at least, in units of the variance of targets.
HIGHEST_GIVEN = 0.1


@dataclass(frozen=True)
class Round:
    """Hyper-parameters, what partitions make of their inputs at these, and what errors inputs are taken to have."""

    point: Point
    versions: Versions
    errors: NormalErrors

    def numbers(self) -> np.ndarray:
        """Logarithms of all that is learned."""
        return np.concatenate([theta_of(self.point), np.log(self.errors.variance or ())])

    def at(self, numbers, versions: Versions) -> "Round":
        """The same kind of round at other `numbers` and versions."""
        size = len(theta_of(self.point))
        variance = self.errors.variance and tuple(np.exp(numbers[size:]).tolist())
        return Round(moved(self.point, numbers[:size]), versions, replace(self.errors, variance=variance))

    def with_fitting_errors(self) -> "Round":
        """With learned variances of errors the mean squares of these, (D,), at the same inputs."""
        if self.errors.variance is None:
            return self
        steps = self.versions.steps
        square = np.mean(np.concatenate([one.reshape(-1, one.shape[-1]) for one in steps.values()]) ** 2, axis=0)
        errors = replace(self.errors, variance=tuple((square * self.errors.variance).tolist()))
        rescaled = {key: one / np.sqrt(square) for key, one in steps.items()}
        return replace(self, versions=replace(self.versions, steps=rescaled), errors=errors)


class InputsObjective:
    """The evidence at versions of inputs, with its gradient in the log hyper-parameters; one round over partitions."""

    def __init__(self, turns: "Turns", at: Round, *, left_out: bool):
        self.turns, self.at, self.left_out = turns, at, left_out

    def __call__(self, kernel, likelihood) -> tuple[float, np.ndarray]:
        at = replace(self.at, point=Point("", kernel, likelihood, -np.inf))
        total = self.turns.sum(at, lambda trial: VersionsEvidence(trial, self.left_out)).total
        return (-np.inf, np.zeros_like(total.gradient)) if total.failures else (total.value, total.gradient)


class Turns:
    """Turns of inputs and hyper-parameters over some partitions."""

    def __init__(self, ground: TrainingContext, parts: Sequence[Partition], mean: str):
        self.ground, self.parts, self.mean, self.inputs = ground, parts, mean, parts[0].data.inputs

    def begun(self, point: Point, errors: NormalErrors) -> Round:
        """At inputs as they were seen."""
        return Round(point, Versions({p.key: np.zeros((1, p.rows, self.inputs)) for p in self.parts}), errors)

    def smoother(self, at: Round, shortest: float) -> Round:
        """With lengthscales no shorter than that, and the variances of highest evidence at these."""
        kernel = at.point.kernel
        lengths = {name: np.maximum(kernel.parameters[name], shortest) for name in kernel.lengthscales}
        held = tuple(f"kernel.{name}" for name in lengths)
        point = replace(at.point, kernel=kernel.with_parameters(kernel.parameters | lengths), held=held)
        point = replace(self.climbed(replace(at, point=point), left_out=False).point, held=())
        noise = float(point.likelihood.parameters[NOISE][0])
        return replace(at, point=point, errors=replace(at.errors, highest=noise))

    def sum(self, at: Round, task: Callable[[InputTrial], Any]) -> Any:
        """The sum over partitions of a task made for a round."""
        steps = np.concatenate([at.versions.steps[part.key] for part in self.parts], axis=1)
        ends = np.cumsum([0, *(part.rows for part in self.parts)]).tolist()
        starts = tuple((part.key, end) for part, end in zip(self.parts, ends[:-1], strict=True))
        point, scaling = at.point, self.ground.scaling
        with self.ground.transient({"steps": steps}) as references:
            what = point.kernel, self.mean, point.likelihood, references["steps"], starts
            return self.ground.sum(task(InputTrial(scaling, at.errors, *what)), self.parts)

    def climbed(self, at: Round, *, left_out: bool) -> Round:
        """Hyper-parameters of higher evidence at the same inputs."""
        objective = InputsObjective(self, at, left_out=left_out)
        found = polish(objective, at.point, inputs=self.inputs, steps=CLIMBING_STEPS)
        point = replace(at.point, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)
        return replace(at, point=point)

    def cleaned(self, at: Round, noise: float) -> Round:
        """After a level of the noise."""
        likelihood = at.point.likelihood.with_parameters({NOISE: np.array([noise])})
        at = replace(at, point=replace(at.point, likelihood=likelihood, held=(HELD,)))
        for _ in range(TURNS):
            versions = self.sum(at, lambda trial: Cleaning(trial, CLEANING_STEPS, trial.errors.seed))
            at = self.climbed(replace(at, versions=versions), left_out=True)
        return at

    def drawn(self, at: Round, number: int) -> Round:
        """After the so-manieth round of draws."""
        seed, lengths = (at.errors.seed, number), tuple(at.versions.lengths.items())
        versions = self.sum(at, lambda trial: Drawing(trial, DRAWS, BURN_IN, seed, lengths))
        return self.climbed(replace(at, versions=versions), left_out=False).with_fitting_errors()

    def once(self, make: Callable[[], Round], start: Round, name: str) -> Round:
        """A round, or what a process that was killed has left of it among the scratch."""
        path = Path(self.ground.scratch, f"versions-{self._identity(start)}-{name}.npz")
        if not path.exists():
            made = make()
            facts = json.dumps({"densities": made.versions.densities, "lengths": made.versions.lengths})
            steps = {f"steps{k}": made.versions.steps[part.key] for k, part in enumerate(self.parts)}
            arrays: dict[str, Any] = {"numbers": made.numbers(), "facts": np.array(facts), **steps}
            np.savez(f"{path}.tmp.npz", **arrays)
            os.replace(f"{path}.tmp.npz", path)
        with np.load(path) as kept:
            found = {part.key: kept[f"steps{k}"] for k, part in enumerate(self.parts)}
            return start.at(kept["numbers"], Versions(found, **json.loads(str(kept["facts"]))))

    def _identity(self, start):
        """Of all that rounds depend on but their number."""
        rows = [self.ground.scaling.digest, self.mean, *(part.key for part in self.parts)]
        what = [rows, described(start.point.kernel, start.point.likelihood), start.errors.to_json()]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def learn_inputs(start: Point, ground: TrainingContext, mean: str, settings) -> tuple[Point, NormalErrors]:
    """Hyper-parameters of rows whose inputs were seen with errors, and what experts are to know of these.

    As they are given where nothing is learned; adds to what was found.
    """
    way, seed, noise = settings.noisy_inputs, settings.seed, float(start.likelihood.parameters[NOISE][0])
    if not ground.learn:
        return start, NormalErrors(way, max(noise, HIGHEST_GIVEN), seed=seed)
    turns = Turns(ground, evenly(ground.parts, ROWS[ground.effort]), mean)
    unknown = not turns.parts[0].data.variance
    variance = (FIRST_ERROR**2,) * turns.inputs if unknown else None
    begun = turns.begun(start, NormalErrors(way, noise, variance, seed))
    ended = [(_cleaned if way == CLEAN else _drawn)(turns, one) for one in _beginnings(turns, begun)]
    scores = [_score(turns, found) for found, _ in ended] if len(ended) > 1 else [0.0]
    found, told = ended[int(np.argmax(scores))]
    told |= {"beginnings": _finite(scores)} if len(ended) > 1 else {}
    ground.found["input_errors"] = {"rows": sum(part.rows for part in turns.parts), "noise_seen": noise} | told
    return found.point, found.errors


def _score(turns, found):
    """How well a beginning has ended, by rows that training has."""
    if found.errors.way == CLEAN:
        return found.versions.density
    return turns.sum(found, AveragedEvidence).total.value


def _beginnings(turns, begun):
    """Where it begins: as inputs were seen, and with longer lengthscales where these are too short for that."""
    smoothest = [shortest * np.sqrt(turns.inputs) for shortest in SHORTEST[turns.ground.effort]]
    kernel = begun.point.kernel
    least = min((kernel.parameters[name].min() for name in kernel.lengthscales), default=np.inf)
    return [begun, *(turns.smoother(begun, shortest) for shortest in smoothest if shortest > least)]


def _cleaned(turns, begun):
    """The level of the noise at which rows that are left out are predicted best, and facts."""
    noise, rounds, densities = begun.errors.highest, [begun], list[float]()
    for level in range(LEVELS):
        rounds.append(turns.once(lambda noise=noise: turns.cleaned(rounds[-1], noise), begun, f"{level}"))
        densities.append(rounds[-1].versions.density)
        if level - int(np.argmax(densities)) == PATIENCE:
            break
        noise *= COOLING
    best = int(np.argmax(densities))
    return rounds[1 + best], {"densities": _finite(densities)}


def _drawn(turns, begun):
    """The mean of the logarithms of the last half of the rounds, and facts."""
    last, count, numbers = begun, ROUNDS[turns.ground.effort], []
    for number in range(count):
        last = turns.once(lambda at=last, number=number: turns.drawn(at, number), begun, f"{number}")
        numbers.append(last.numbers())
    return begun.at(np.mean(numbers[count // 2 :], axis=0), last.versions), {"rounds": count}


def _finite(figures):
    return [figure if np.isfinite(figure) else None for figure in figures]


def evenly(parts: Sequence[Partition], rows: int) -> list[Partition]:
    """Evenly spread partitions of so many rows in all, about; at least one."""
    most = max(1, round(rows * len(parts) / sum(part.rows for part in parts)))
    return [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, min(most, len(parts))).astype(int))]
