"""Ascent of the evidence of networks by L-BFGS: one network a task, or two rounds over the rows per evaluation.

Where a worker thread can hold the designs of all training rows (`side_by_side`), a task makes the whole ascent of a
network, and networks are trained side by side. Else they are trained one after the other, with sums over partitions
(`rounds`). Finished networks are stored in the scratch directory, from which an interrupted fit continues.
"""

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.partition import Partition, Span
from bcmdist.data.rows import read_all
from bcmdist.learning.stopping import stop_at_first, stop_when_idle
from bcmdist.learning.time_limit import TimeLimit
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks.evidence import NOISE, DesignedRows, Evaluated, Evidence, EvidenceInMemory, Network
from bcmdist.methods.networks.rounds import EvidenceByRounds
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.runtime.memory import BASE_BYTES, FLOAT
from bcmdist.storage.commits import BlobReference, load_array

# Largest number of iterations per network.
STEPS = {"quick": 100, "normal": 300, "thorough": 1000}
# Evaluations per iteration.
EVALUATIONS = 1.05
# Iterations of an ascent that `--plan` measures, and their evaluations: the first line searches are longer.
MEASURED_STEPS, MEASURED = 8, 10
# Share of the iterations in which one row in `LEFT_OUT` is left out. They are looked at after `LOOK` iterations, later
# each time a share 1 / `LOOKS` more has been made; the ascent ends when they have got worse `PATIENCE` times in a row.
FIRST_SHARE, LEFT_OUT = 2 / 3, 10
LOOK, LOOKS, PATIENCE = 5, 10, 3
CORRECTIONS = 50  # of L-BFGS: kin40k gains more from these than from a third more iterations with 10
# Largest factor between initial and trained signal or noise: beyond it a network carries no information.
LARGEST_FACTOR = 1e6
# Largest designs and rows of a task: 100,000 rows of 250 units and some inputs. Arbitrary; above it an evaluation takes
# more than a second, and sums over partitions use more threads than there are networks.
LARGEST_BYTES = 2**28
STEP, LABEL = "training of networks", "train"


@dataclass(frozen=True)
class Reached:
    """Result of an ascent."""

    network: Network
    """the best network"""
    log_evidence: float
    evaluations: int
    """number of evaluations"""
    cut: bool = False
    """whether the time limit ended the ascent"""
    without_left_out: Network | None = None
    """the best network that was trained without the rows left out; None if none were left out"""


@dataclass(frozen=True)
class Ascent:
    """How a network climbs from its start: L-BFGS, which ends with the best network so far.

    First, the rows left out choose the best network of the ascent: trained further, many networks fit the noise of
    their rows. If they have not ended the ascent, it goes on with all rows.
    """

    widths: np.ndarray
    """units of the inner weights in the search, (1 + D,)"""
    steps: int
    """largest number of iterations"""
    seconds: float = math.inf
    """largest time"""

    def __call__(self, evidence: Evidence, start: Network) -> Reached:
        """Return the network that the start reaches, with its log evidence of all rows."""
        limit = TimeLimit(self.seconds)
        limit.begin(STEP, 1.0)
        first = _Climb(functools.partial(evidence, whole=not evidence.rows_left_out), start, self.widths)
        if not evidence.rows_left_out:
            first.ascend(self.steps, limit.stop_when_passed())
            return Reached(first.network, first.value, first.evaluations, bool(limit.unfinished))
        left_out, steps = _LeftOut(evidence, first), math.ceil(FIRST_SHARE * self.steps)
        first.ascend(steps, left_out, limit.stop_when_passed())
        if left_out.stopped or limit.unfinished or steps == self.steps:
            left_out.look()
            network, value, more = left_out.network, evidence(left_out.network, whole=True).value, 1
            without_left_out = network
        else:
            last = _Climb(functools.partial(evidence, whole=True), first.network, self.widths)
            last.ascend(self.steps - steps, limit.stop_when_passed())
            network, value, more = last.network, last.value, last.evaluations
            without_left_out = first.network
        return Reached(network, value, first.evaluations + more, bool(limit.unfinished), without_left_out)


class _Climb:
    """An ascent by L-BFGS, and the best network so far."""

    def __init__(self, objective: Callable[[Network], Evaluated], start: Network, widths):
        self.objective, self.start, self.widths = objective, start, widths
        self.network, self.value, self.evaluations = start, -math.inf, 0

    def ascend(self, steps, *stops) -> None:
        """Make at most `steps` iterations; each of the callbacks `stops` may end them."""
        start, room = self.start.inner, np.log(LARGEST_FACTOR)
        minimize(
            self._loss,
            np.concatenate([(start / self.widths).ravel(), np.zeros(2)]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * start.size + [(-room, room)] * 2,
            callback=stop_at_first(stop_when_idle(), *stops),
            options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": 0.0, "maxcor": CORRECTIONS},
        )

    def _loss(self, theta):
        self.evaluations += 1
        network = self.start.moved(theta[:-2].reshape(self.start.inner.shape) * self.widths, *theta[-2:])
        found = self.objective(network)
        if found.value > self.value:
            self.value, self.network = found.value, network
        slope = (found.inner * self.widths).ravel()
        return -found.value, -np.concatenate([slope, [found.log_scale, found.log_noise]])


class _LeftOut:
    """A callback that looks at the rows left out now and then, and stops L-BFGS when it no longer helps them."""

    def __init__(self, evidence: Evidence, climb: _Climb):
        self.evidence, self.climb, self.network = evidence, climb, climb.start
        self.best, self.losses, self.done, self.next = evidence.density(climb.start), 0, 0, LOOK

    @property
    def stopped(self) -> bool:
        """Whether the rows left out ended the ascent."""
        return self.losses >= PATIENCE

    def __call__(self, intermediate_result) -> None:
        self.done += 1
        if self.done == self.next:
            self.next += max(LOOK, self.next // LOOKS)
            self.look()
            if self.stopped:
                raise StopIteration

    def look(self) -> None:
        """Compare the present network with the best one."""
        found = self.evidence.density(self.climb.network)
        if found > self.best:
            self.best, self.network, self.losses = found, self.climb.network, 0
        elif self.network is not self.climb.network:
            self.losses += 1


@dataclass(frozen=True)
class NetworkAscent:
    """Task: the whole ascent of one network; the span gives its number."""

    scaling: BlobReference
    part: Partition
    """partition of all training rows, each of which counts once"""
    first: int
    """number of rows but those left out, which are the last"""
    mean: str
    inner: BlobReference
    """initial inner weights"""
    scale: float
    likelihood: OneProcess
    ascent: Ascent

    def __call__(self, span, _) -> Reached:
        ((_, rows),) = read_all([self.part])
        scaling, inner = load_scaling(self.scaling), load_array(self.inner)
        X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units, rows.X)
        first, left_out = (
            DesignedRows(X[some], obs[some], Mean(self.mean), len(inner))
            for some in (slice(0, self.first), slice(self.first, None))
        )
        return self.ascent(EvidenceInMemory(first, left_out), Network(inner, self.scale, self.likelihood))

    def one_round(self) -> "NetworkAscent":
        """A short ascent, of about `MEASURED` evaluations, for `--plan`."""
        return replace(self, ascent=replace(self.ascent, steps=MEASURED_STEPS))


def ascent_bytes(rows, inputs, units) -> int:
    """Bytes that a task needs for the ascent of one network: its design, and two copies of the rows."""
    return FLOAT * rows * (units + 2 * (1 + inputs))


def side_by_side(rows, inputs, units, allowed_bytes=math.inf) -> bool:
    """Whether a task makes the whole ascent of a network. The number of threads does not matter, so that results do
    not depend on it.

    allowed_bytes : memory of a worker thread
    """
    needed = ascent_bytes(rows, inputs, units)
    return needed <= LARGEST_BYTES and needed + BASE_BYTES <= allowed_bytes


def climbed(
    starts: Sequence[Network], parts: Sequence[Partition], mean: Mean, ascent: Ascent, context: TrainingContext
) -> list[Reached]:
    """The networks that the ascents of the starts reach, which an interrupted fit may have left in the scratch
    directory.

    parts : neighbouring partitions of the training rows
    """
    paths = [
        Path(context.scratch, f"networks-{_identity(start, parts, mean, ascent, context)}.npz") for start in starts
    ]
    left = [k for k, path in enumerate(paths) if not path.exists()]
    rows, (units, columns) = sum(part.rows for part in parts), starts[0].inner.shape
    together = side_by_side(rows, columns - 1, units, context.runtime.allowed_bytes)
    for k, found in (_in_tasks if together else _in_turn)(starts, left, parts, mean, ascent, context):
        _store(paths[k], found)
    return [_stored(path, start) for path, start in zip(paths, starts, strict=True)]


def first_of(parts: Sequence[Partition]) -> Sequence[Partition]:
    """The partitions but those left out, the last ones."""
    return parts[: len(parts) - len(parts) // LEFT_OUT]


def _in_tasks(starts, left, parts, mean, ascent, context) -> Iterator[tuple[int, Reached]]:
    """Yield the number of each network left to be trained, and what it has reached, as they end."""
    whole, turns = replace(parts[0], stop=parts[-1].stop), -(-len(left) // context.runtime.threads)
    ascent = replace(ascent, seconds=ascent.seconds / max(turns, 1))
    rows = sum(part.rows for part in first_of(parts))
    context.runtime.progress(LABEL, 0, len(left))
    with context.transient({f"network {k}": starts[k].inner for k in left}) as references:

        def task(k):
            start = starts[k]
            how = references[f"network {k}"], start.scale, start.likelihood, ascent
            return NetworkAscent(context.scaling, whole, rows, mean.name, *how)

        work = [(task(k), [Span(k, k + 1)]) for k in left]
        for done, outcome in enumerate(context.runtime.each(work, label=LABEL), start=1):
            if outcome.error is not None:
                raise outcome.error
            context.runtime.progress(LABEL, done, len(left))
            yield outcome.parts[0].start, outcome.result


def _in_turn(starts, left, parts, mean, ascent, context):
    """As `_in_tasks`, one network after the other."""
    first = first_of(parts)
    evidence = EvidenceByRounds(context, first, parts[len(first) :], mean)
    for k in left:
        yield k, replace(ascent, seconds=ascent.seconds / len(left))(evidence, starts[k])


def _store(path, reached):
    """Store the network, then that without the rows left out if there is one."""
    networks = [one for one in (reached.network, reached.without_left_out) if one]
    parameters = [[one.scale, one.likelihood.parameters[NOISE][0]] for one in networks]
    np.savez(
        path.with_suffix(".tmp.npz"),
        inner=np.stack([one.inner for one in networks]),
        parameters=np.array(parameters),
        numbers=np.array([reached.log_evidence, reached.evaluations, reached.cut]),
    )
    os.replace(path.with_suffix(".tmp.npz"), path)


def _stored(path, start) -> Reached:
    with np.load(path) as found:
        network, *without_left_out = (
            Network(inner, float(scale), start.likelihood.with_parameters({NOISE: np.array([noise])}))
            for inner, (scale, noise) in zip(found["inner"], found["parameters"], strict=True)
        )
        value, evaluations, cut = found["numbers"].tolist()
        return Reached(network, value, int(evaluations), bool(cut), *without_left_out)


def _identity(start, parts, mean, ascent, context):
    """Hash of everything that a network depends on."""
    parameters = {name: value.tolist() for name, value in start.likelihood.parameters.items()}
    how = [start.likelihood.name, parameters, mean.name, start.scale, ascent.widths.tolist(), ascent.steps]
    rows = [context.scaling.digest, *(part.key for part in parts)]
    digest = hashlib.sha256(json.dumps([how, rows]).encode())
    digest.update(start.inner.tobytes())
    return digest.hexdigest()[:16]
