"""Learn hyper-parameters from rows with noisy inputs (Quinonero-Candela 2004, 4.3; SYSTEMS T23, T24).

Learning as if inputs were exact gives too large a noise variance of targets. From there two steps alternate: partitions
update their inputs at the current hyper-parameters; then the hyper-parameters are improved by the sum of the
partitions' evidences at the updated inputs.

    clean   the most probable inputs; the noise variance is lowered from round to round. The thesis stops at a given
            noise (4.3.1.2); here the level that predicts left-out rows best is chosen. For likelihoods that are not
            Gaussian a temperature is lowered instead, by which inputs move further, and all hyper-parameters are
            learned.
    hmc     draws of inputs; the noise is learned too and, for data without X_variance, one error variance per column:
            the mean square of the sampled errors. The logarithms of the last rounds are averaged (4.3.2).

Where partitions are spatial, `clean` maximises the evidence averaged over inputs (`averaged_evidence`) of
neighbourhoods of rows, by which local predictions treat errors of inputs; its inputs are not estimated.

Errors of inputs may look like a rough function, a local optimum that the alternation does not leave. So there are
several starts, the others with longer lengthscales. The best result is kept: by the predictive density of left-out rows
(clean), or by the evidence integrated over inputs (hmc).

Only hyper-parameters are kept: each partition infers its inputs again when it is absorbed (`NoisyExpert`).
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bcmdist.data.partition import Partition, evenly
from bcmdist.learning.point import Point, moved, theta_of
from bcmdist.learning.search import EFFORTS, polish
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.noisy_inputs.evidence import (
    AveragedEvidence,
    InputsEvidence,
    InputSteps,
    InputTrial,
    IntegratedEvidence,
    MapTask,
    SamplingTask,
)
from bcmdist.methods.noisy_inputs.expert import CLEAN, LearningReport, NormalErrors
from bcmdist.methods.noisy_inputs.options import InputOptions
from bcmdist.methods.noisy_inputs.posterior import COOLING, NOISE, temperatures
from bcmdist.model.model import described

NOISE_NAME = f"likelihood.{NOISE}"  # fixed with clean: if free, it would shrink until all rows are fitted exactly
# Approximate number of rows to learn from, in evenly spread partitions.
ROWS = {"quick": 1000, "normal": 2000, "thorough": 5000}
# Largest number of noise levels, alternations per level, iterations for inputs and for hyper-parameters, and levels
# without improvement after which the search stops.
LEVELS, ALTERNATIONS, INPUT_STEPS, PARAMETER_STEPS, PATIENCE = 12, 3, 20, 10, 2
# Rounds of sampling by effort, the last half of which is averaged; draws per round, and burn-in trajectories.
ROUNDS = {"quick": 10, "normal": 20, "thorough": 40}
DRAWS, BURN_IN = 10, 30
# Initial standard deviation of learned errors, in scaled inputs; chains shrink it faster than they increase it.
FIRST_ERROR = 0.3
# Starts by effort: lower bounds of the lengthscales, in units of sqrt(D) standard deviations of inputs.
SHORTEST = {"quick": (0.0,), "normal": (0.0, 0.5, 1.0), "thorough": (0.0, 0.25, 0.5, 1.0)}
# Smallest initial noise variance of the search for inputs with --no-learn, in units of the variance of targets.
LEAST_START_NOISE = 0.1
# Iterations of the search for hyper-parameters by the averaged evidence.
AVERAGED_STEPS = 40
# First temperature of the search for inputs, of other than normal errors (arbitrary), and the last one of learning: at
# the most probable inputs, at temperature 1, classes may be separable, and the kernel's variance grows without limit.
FIRST_TEMPERATURE, LAST_TEMPERATURE = 64.0, 2.0


@dataclass(frozen=True)
class Estimate:
    """Hyper-parameters, the corresponding steps to the true inputs, and the error variances of inputs."""

    point: Point
    steps: InputSteps
    errors: NormalErrors

    def numbers(self) -> np.ndarray:
        """Logarithms of everything that is learned."""
        return np.concatenate([theta_of(self.point), np.log(self.errors.variance or ())])

    def at(self, numbers, steps: InputSteps) -> "Estimate":
        """The same with other `numbers` and steps."""
        size = len(theta_of(self.point))
        variance = self.errors.variance and tuple(np.exp(numbers[size:]).tolist())
        return Estimate(moved(self.point, numbers[:size]), steps, replace(self.errors, variance=variance))

    def with_fitting_errors(self) -> "Estimate":
        """Replace learned error variances by the mean squares of the errors, (D,), at the same inputs."""
        if self.errors.variance is None:
            return self
        steps = self.steps.by_key
        square = np.mean(np.concatenate([one.reshape(-1, one.shape[-1]) for one in steps.values()]) ** 2, axis=0)
        errors = replace(self.errors, variance=tuple((square * self.errors.variance).tolist()))
        rescaled = {key: one / np.sqrt(square) for key, one in steps.items()}
        return replace(self, steps=replace(self.steps, by_key=rescaled), errors=errors)


class InputsObjective:
    """The evidence of a task, with its gradient in the log hyper-parameters; one pass over the partitions."""

    def __init__(self, learner: "AlternatingLearner", at: Estimate, task: Callable[[InputTrial], Any]):
        self.learner, self.at, self.task = learner, at, task

    def __call__(self, kernel, likelihood) -> tuple[float, np.ndarray]:
        at = replace(self.at, point=Point("", kernel, likelihood, -np.inf))
        total = self.learner.sum(at, self.task).total
        return (-np.inf, np.zeros_like(total.gradient)) if total.failures else (total.value, total.gradient)


class AlternatingLearner:
    """Alternating updates of inputs and hyper-parameters over some partitions."""

    def __init__(self, context: TrainingContext, parts: Sequence[Partition], mean: str):
        self.context, self.parts, self.mean, self.inputs = context, parts, mean, parts[0].data.inputs

    def initial(self, point: Point, errors: NormalErrors) -> Estimate:
        """The estimate at the measured inputs."""
        return Estimate(point, InputSteps({p.key: np.zeros((1, p.rows, self.inputs)) for p in self.parts}), errors)

    def smoother(self, at: Estimate, shortest: float) -> Estimate:
        """Estimate with lengthscales of at least `shortest`, and the other hyper-parameters optimised."""
        kernel = at.point.kernel
        lengths = {name: np.maximum(kernel.parameters[name], shortest) for name in kernel.lengthscales}
        held = tuple(f"kernel.{name}" for name in lengths)
        point = replace(at.point, kernel=kernel.with_parameters(kernel.parameters | lengths), fixed=held)
        point = replace(self.with_best_parameters(replace(at, point=point), left_out=False).point, fixed=())
        highest = float(point.likelihood.parameters[NOISE][0]) if point.likelihood.normal else FIRST_TEMPERATURE
        return replace(at, point=point, errors=replace(at.errors, highest=highest))

    def sum(self, at: Estimate, task: Callable[[InputTrial], Any]) -> Any:
        """Sum a task over partitions; `task` creates it from the trial of an estimate."""
        steps = np.concatenate([at.steps.by_key[part.key] for part in self.parts], axis=1)
        ends = np.cumsum([0, *(part.rows for part in self.parts)]).tolist()
        starts = tuple((part.key, end) for part, end in zip(self.parts, ends[:-1], strict=True))
        point, scaling = at.point, self.context.scaling
        with self.context.transient({"steps": steps}) as references:
            what = point.kernel, self.mean, point.likelihood, references["steps"], starts
            return self.context.sum(task(InputTrial(scaling, at.errors, *what)), self.parts)

    def with_best_parameters(self, at: Estimate, *, left_out: bool) -> Estimate:
        """Estimate with hyper-parameters of higher evidence at the same inputs."""
        return self.polished(at, lambda trial: InputsEvidence(trial, left_out), PARAMETER_STEPS)

    def polished(self, at: Estimate, task: Callable[[InputTrial], Any], steps: int) -> Estimate:
        """Estimate with hyper-parameters of a higher evidence, after at most `steps` iterations."""
        found = polish(InputsObjective(self, at, task), at.point, inputs=self.inputs, steps=steps)
        point = replace(at.point, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)
        return replace(at, point=point)

    def at_level(self, at: Estimate, level: float) -> Estimate:
        """Estimate after the alternations at one noise variance of targets, or at one temperature."""
        temperature = 1.0 if at.point.likelihood.normal else level
        if at.point.likelihood.normal:
            likelihood = at.point.likelihood.with_parameters({NOISE: np.array([level])})
            at = replace(at, point=replace(at.point, likelihood=likelihood, fixed=(NOISE_NAME,)))
        for _ in range(ALTERNATIONS):
            steps = self.sum(at, lambda trial: MapTask(trial, temperature, INPUT_STEPS, trial.errors.seed))
            at = self.with_best_parameters(replace(at, steps=steps), left_out=True)
        return at

    def sampled(self, at: Estimate, number: int) -> Estimate:
        """Estimate after round `number` of sampling."""
        seed, lengths = (at.errors.seed, number), tuple(at.steps.lengths.items())
        steps = self.sum(at, lambda trial: SamplingTask(trial, DRAWS, BURN_IN, seed, lengths))
        return self.with_best_parameters(replace(at, steps=steps), left_out=False).with_fitting_errors()

    def once(self, make: Callable[[], Estimate], start: Estimate, name: str) -> Estimate:
        """Compute a round, or reuse its result in the scratch directory if an interrupted fit has left one."""
        path = Path(self.context.scratch, f"versions-{self._identity(start)}-{name}.npz")
        if not path.exists():
            made = make()
            facts = json.dumps({"densities": made.steps.densities, "lengths": made.steps.lengths})
            steps = {f"steps{k}": made.steps.by_key[part.key] for k, part in enumerate(self.parts)}
            arrays: dict[str, Any] = {"numbers": made.numbers(), "facts": np.array(facts), **steps}
            np.savez(f"{path}.tmp.npz", **arrays)
            os.replace(f"{path}.tmp.npz", path)
        with np.load(path) as kept:
            found = {part.key: kept[f"steps{k}"] for k, part in enumerate(self.parts)}
            return start.at(kept["numbers"], InputSteps(found, **json.loads(str(kept["facts"]))))

    def _identity(self, start):
        """Hash of everything that rounds depend on except their number."""
        rows = [self.context.scaling.digest, self.mean, *(part.key for part in self.parts)]
        what = [rows, described(start.point.kernel, start.point.likelihood), msgspec.to_builtins(start.errors)]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def learn_inputs(start: Point, context: TrainingContext, mean: str, settings) -> tuple[Point, NormalErrors]:
    """Learn hyper-parameters from rows with noisy inputs; return them and the errors of inputs for the experts.

    With --no-learn the hyper-parameters are unchanged. A report is added to the context.
    """
    form, seed = settings.of(InputOptions).noisy_inputs, settings.seed
    averaged = form == CLEAN and context.near is not None
    noise = float(start.likelihood.parameters[NOISE][0]) if start.likelihood.normal else None
    if not context.learn:
        highest = max(noise, LEAST_START_NOISE) if noise else FIRST_TEMPERATURE
        return start, NormalErrors(form, highest, seed=seed)
    block = EFFORTS[context.effort].block if averaged else max(part.rows for part in context.parts)
    learner = AlternatingLearner(context, _partitions(context, start.kernel, block), mean)
    unknown = not learner.parts[0].data.variance
    variance = (FIRST_ERROR**2,) * learner.inputs if unknown else None
    initial = learner.initial(start, NormalErrors(form, noise or FIRST_TEMPERATURE, variance, seed))
    if averaged:
        rows = sum(part.rows for part in learner.parts)
        context.found["input_errors"] = LearningReport(rows=rows, noise_seen=noise)
        return learner.polished(initial, AveragedEvidence, AVERAGED_STEPS).point, initial.errors
    ended = [(_by_level if form == CLEAN else _by_sampling)(learner, one) for one in _starts(learner, initial)]
    scores = [_score(learner, found) for found, _ in ended] if len(ended) > 1 else [0.0]
    found, facts = ended[int(np.argmax(scores))]
    facts |= {"beginnings": _finite(scores)} if len(ended) > 1 else {}
    rows = sum(part.rows for part in learner.parts)
    context.found["input_errors"] = LearningReport(rows=rows, noise_seen=noise, **facts)
    return found.point, found.errors


def _partitions(context, kernel, size):
    """Partitions to learn from; where these are spatial, neighbourhoods of `size` rows at several densities."""
    rows = ROWS[context.effort]
    if context.near is None:
        return evenly(context.parts, rows)
    whole = sum(part.rows for part in context.parts)
    shares = np.geomspace(1.0, min(1.0, size / whole), max(2, min(rows, whole) // size))
    return context.near(kernel, shares, size)


def _score(learner, found):
    """The criterion for choosing between the results of several starts."""
    if found.errors.way == CLEAN:
        return found.steps.density
    return learner.sum(found, IntegratedEvidence).total.value


def _starts(learner, initial):
    """Estimates to start from: the one for exact inputs, and some with longer lengthscales."""
    smoothest = [shortest * np.sqrt(learner.inputs) for shortest in SHORTEST[learner.context.effort]]
    kernel = initial.point.kernel
    least = min((kernel.parameters[name].min() for name in kernel.lengthscales), default=np.inf)
    return [initial, *(learner.smoother(initial, shortest) for shortest in smoothest if shortest > least)]


def _by_level(learner, initial):
    """The estimate at the noise level, or temperature, that predicts left-out rows best, and a report."""
    highest, rounds, densities = initial.errors.highest, [initial], list[float]()
    noises = [highest * COOLING**number for number in range(LEVELS)]
    tempered = (temperature for temperature in temperatures(highest) if temperature >= LAST_TEMPERATURE)
    levels = noises if initial.point.likelihood.normal else tempered
    for number, level in enumerate(levels):
        rounds.append(learner.once(lambda level=level: learner.at_level(rounds[-1], level), initial, f"{number}"))
        densities.append(rounds[-1].steps.density)
        if number - int(np.argmax(densities)) == PATIENCE:
            break
    best = int(np.argmax(densities))
    return rounds[1 + best], {"densities": _finite(densities)}


def _by_sampling(learner, initial):
    """The geometric mean of the last half of the rounds, and a report."""
    last, count, numbers = initial, ROUNDS[learner.context.effort], []
    for number in range(count):
        last = learner.once(lambda at=last, number=number: learner.sampled(at, number), initial, f"{number}")
        numbers.append(last.numbers())
    return initial.at(np.mean(numbers[count // 2 :], axis=0), last.steps), {"rounds": count}


def _finite(figures):
    return [figure if np.isfinite(figure) else None for figure in figures]
