"""Learning where inputs were seen with errors (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

It begins where learning from the inputs as they were seen has ended, with too much noise of targets and too long
lengthscales, and goes on in rounds: partitions find their inputs at the hyper-parameters of the moment, then these
climb the evidence of all partitions on their own at the inputs found.

    clean   inputs of highest density; the noise is lowered from round to round, which the thesis ends where the noise
            is known to be (4.3.1.2). Here rows that are left out say where they are predicted best.
    hmc     draws of inputs; the noise is learned, too, and the logarithms of the last rounds are averaged (4.3.2)

What is learned are hyper-parameters: each partition then finds its inputs by itself when it is heard
(`bcmdist.experts.inputs`), those that arrive later likewise.
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
from bcmdist.experts.inputs.clean import COOLING
from bcmdist.experts.inputs.density import NOISE
from bcmdist.learning.evidence.input_tasks import Cleaning, Drawing, InputTrial, Versions, VersionsEvidence
from bcmdist.learning.ground import Ground
from bcmdist.learning.point import Point, moved, theta_of
from bcmdist.learning.search import polish
from bcmdist.model.input_errors import InputErrors
from bcmdist.model.model import described

CLEAN, HMC = InputErrors.WAYS
HELD = f"likelihood.{NOISE}"  # while cleaning: free, it would shrink until all rows are fitted
# Rows that are looked at, in evenly spread partitions, about.
ROWS = {"quick": 1000, "normal": 2000, "thorough": 5000}
# Levels of the noise at most, turns of inputs and hyper-parameters at each, iterations of either, and levels in a row
# after which no better one is expected.
LEVELS, TURNS, CLEANING_STEPS, CLIMBING_STEPS, PATIENCE = 12, 3, 20, 10, 2
# Rounds of draws by effort, of which the last half is averaged; draws of a round, and trajectories before the first.
ROUNDS = {"quick": 10, "normal": 20, "thorough": 40}
DRAWS, BURN_IN = 10, 30
# Noise at which cleaning begins where nothing is learned, at least, in units of the variance of targets.
HIGHEST_GIVEN = 0.1


@dataclass(frozen=True)
class Round:
    """Hyper-parameters, and what partitions make of their inputs at these."""

    point: Point
    versions: Versions


class InputsObjective:
    """The evidence at versions of inputs, with its gradient in the log hyper-parameters; one round over partitions."""

    def __init__(self, turns: "Turns", versions: Versions, *, left_out: bool):
        self.turns, self.versions, self.left_out = turns, versions, left_out

    def __call__(self, kernel, likelihood) -> tuple[float, np.ndarray]:
        point = Point("", kernel, likelihood, -np.inf)
        total = self.turns.sum(point, self.versions, lambda trial: VersionsEvidence(trial, self.left_out))
        return (-np.inf, np.zeros_like(total.gradient)) if total.failures else (total.value, total.gradient)


class Turns:
    """Turns of inputs and hyper-parameters over some partitions."""

    def __init__(self, ground: Ground, parts: Sequence[Partition], errors: InputErrors, mean: str, inputs: int):
        self.ground, self.parts, self.errors, self.mean, self.inputs = ground, parts, errors, mean, inputs

    def begun(self) -> Versions:
        """Inputs as they were seen."""
        return Versions({part.key: np.zeros((1, part.rows, self.inputs)) for part in self.parts})

    def sum(self, point: Point, versions: Versions, task: Callable[[InputTrial], Any]) -> Any:
        """The sum over partitions of a task made for hyper-parameters and versions of inputs."""
        steps = np.concatenate([versions.steps[part.key] for part in self.parts], axis=1)
        ends = np.cumsum([0, *(part.rows for part in self.parts)]).tolist()
        starts = tuple((part.key, end) for part, end in zip(self.parts, ends[:-1], strict=True))
        with self.ground.transient({"steps": steps}) as references:
            at = point.kernel, self.mean, point.likelihood, references["steps"], starts
            return self.ground.sum(task(InputTrial(self.ground.scaling, self.errors, *at)), self.parts)

    def climbed(self, point: Point, versions: Versions, *, left_out: bool) -> Point:
        """Hyper-parameters of higher evidence at versions of inputs."""
        objective = InputsObjective(self, versions, left_out=left_out)
        found = polish(objective, point, inputs=self.inputs, steps=CLIMBING_STEPS)
        return replace(point, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)

    def cleaned(self, before: Round, noise: float) -> Round:
        """After a level of the noise."""
        likelihood = before.point.likelihood.with_parameters({NOISE: np.array([noise])})
        point, versions = replace(before.point, likelihood=likelihood, held=(HELD,)), before.versions
        for _ in range(TURNS):
            versions = self.sum(point, versions, lambda trial: Cleaning(trial, CLEANING_STEPS, self.errors.seed))
            point = self.climbed(point, versions, left_out=True)
        return Round(point, versions)

    def drawn(self, before: Round, number: int) -> Round:
        """After the so-manieth round of draws."""
        seed, lengths = (self.errors.seed, number), tuple(before.versions.lengths.items())
        versions = self.sum(before.point, before.versions, lambda trial: Drawing(trial, DRAWS, BURN_IN, seed, lengths))
        return Round(self.climbed(before.point, versions, left_out=False), versions)

    def once(self, make: Callable[[], Round], like: Point, name: str) -> Round:
        """A round, or what a process that was killed has left of it among the scratch."""
        path = Path(self.ground.scratch, f"inputs-{self._identity(like)}-{name}.npz")
        if not path.exists():
            made = make()
            facts = json.dumps({"density": made.versions.density, "lengths": made.versions.lengths})
            steps = {f"steps{k}": made.versions.steps[part.key] for k, part in enumerate(self.parts)}
            arrays: dict[str, Any] = {"theta": theta_of(made.point), "facts": np.array(facts), **steps}
            np.savez(f"{path}.tmp.npz", **arrays)
            os.replace(f"{path}.tmp.npz", path)
        with np.load(path) as kept:
            found = {part.key: kept[f"steps{k}"] for k, part in enumerate(self.parts)}
            return Round(moved(like, kept["theta"]), Versions(found, **json.loads(str(kept["facts"]))))

    def _identity(self, start):
        """Of all that rounds depend on but their number."""
        rows = [self.ground.scaling.digest, self.mean, *(part.key for part in self.parts)]
        what = [rows, described(start.kernel, start.likelihood), self.errors.to_json()]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def learn_inputs(start: Point, ground: Ground, mean: str, *, way: str, seed: int) -> tuple[Point, InputErrors]:
    """Hyper-parameters of rows whose inputs were seen with errors, and what experts are to know of these.

    As they are given where nothing is learned; adds to what was found.
    """
    noise = float(start.likelihood.parameters[NOISE][0])
    if not ground.learn:
        return start, InputErrors(way, max(noise, HIGHEST_GIVEN), seed=seed)
    errors = InputErrors(way, noise, seed=seed)
    parts = evenly(ground.parts, ROWS[ground.effort])
    turns = Turns(ground, parts, errors, mean, parts[0].data.inputs)
    found = (_cleaned if way == CLEAN else _drawn)(turns, start)
    rows = {"rows": sum(part.rows for part in parts), "noise_seen": noise}
    ground.found["input_errors"] = rows | found[1]
    return replace(found[0], held=()), errors


def _cleaned(turns, start):
    """The level of the noise at which rows that are left out are predicted best."""
    noise, rounds, densities = turns.errors.highest, [Round(start, turns.begun())], list[float]()
    for level in range(LEVELS):
        rounds.append(turns.once(lambda noise=noise: turns.cleaned(rounds[-1], noise), start, f"{level}"))
        densities.append(rounds[-1].versions.density)
        if level - int(np.argmax(densities)) == PATIENCE:
            break
        noise *= COOLING
    told = [density if np.isfinite(density) else None for density in densities]
    return rounds[1 + int(np.argmax(densities))].point, {"densities": told}


def _drawn(turns, start):
    """The mean of the log hyper-parameters of the last half of the rounds."""
    last, rounds, thetas = Round(start, turns.begun()), ROUNDS[turns.ground.effort], []
    for number in range(rounds):
        last = turns.once(lambda at=last, number=number: turns.drawn(at, number), start, f"{number}")
        thetas.append(theta_of(last.point))
    return moved(start, np.mean(thetas[rounds // 2 :], axis=0)), {"rounds": rounds}


def evenly(parts: Sequence[Partition], rows: int) -> list[Partition]:
    """Evenly spread partitions of so many rows in all, about; at least one."""
    most = max(1, round(rows * len(parts) / sum(part.rows for part in parts)))
    return [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, min(most, len(parts))).astype(int))]
