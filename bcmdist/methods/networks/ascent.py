"""Ascent of the evidence of networks by L-BFGS: one network a task, or two rounds over the rows per evaluation.

Where a worker thread can hold the designs of all training rows (`side_by_side`), a task makes the whole ascent of a
network, and networks are trained side by side. Else they are trained one after the other, with sums over partitions
(`rounds`). Finished networks are stored in the scratch directory, from which an interrupted fit continues.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.partition import Partition, Span
from bcmdist.data.rows import read_all
from bcmdist.learning.stopping import stop_at_first, stop_when_idle
from bcmdist.learning.time_limit import TimeLimit
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks.evidence import NOISE, DesignedRows, Evaluated, Network, evaluated
from bcmdist.methods.networks.rounds import NetworkObjective
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
# Largest factor between initial and trained signal or noise: beyond it a network carries no information.
LARGEST_FACTOR = 1e6
# Largest designs and rows of a task: 100,000 rows of 250 units and some inputs. Arbitrary; above it an evaluation takes
# more than a second, and sums over partitions use more threads than there are networks.
LARGEST_BYTES = 2**28
STEP, LABEL = "training of networks", "train"


@dataclass(frozen=True)
class Reached:
    """The best network of an ascent."""

    network: Network
    log_evidence: float
    evaluations: int
    """number of evaluations"""
    cut: bool = False
    """whether the time limit ended the ascent"""


@dataclass(frozen=True)
class Ascent:
    """How a network climbs from its start: L-BFGS, which ends with the best network so far."""

    widths: np.ndarray
    """units of the inner weights in the search, (1 + D,)"""
    steps: int
    """largest number of iterations"""
    seconds: float = math.inf
    """largest time"""

    def __call__(self, objective: Callable[[Network], Evaluated], start: Network) -> Reached:
        """Maximise the evidence."""
        shape, room = start.inner.shape, np.log(LARGEST_FACTOR)
        best: list[Any] = [-np.inf, start]
        counted, limit = 0, TimeLimit(self.seconds)
        limit.begin(STEP, 1.0)

        def loss(theta):
            nonlocal counted
            counted += 1
            network = start.moved(theta[:-2].reshape(shape) * self.widths, *theta[-2:])
            found = objective(network)
            if found.value > best[0]:
                best[:] = [found.value, network]
            slope = (found.inner * self.widths).ravel()
            return -found.value, -np.concatenate([slope, [found.log_scale, found.log_noise]])

        minimize(
            loss,
            np.concatenate([(start.inner / self.widths).ravel(), np.zeros(2)]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * start.inner.size + [(-room, room)] * 2,
            callback=stop_at_first(stop_when_idle(), limit.stop_when_passed()),
            options={"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": 0.0, "gtol": 0.0},
        )
        return Reached(best[1], best[0], counted, bool(limit.unfinished))


@dataclass(frozen=True)
class NetworkAscent:
    """Task: the whole ascent of one network; the span gives its number."""

    scaling: BlobReference
    part: Partition
    """partition of all training rows, each of which counts once"""
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
        designed = DesignedRows(X, obs, Mean(self.mean), len(inner))

        def objective(network):
            return evaluated(designed.fill(network), designed.gradient, len(inner))

        return self.ascent(objective, Network(inner, self.scale, self.likelihood))

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
    paths = [Path(context.scratch, f"network-{_identity(start, parts, mean, ascent, context)}.npz") for start in starts]
    left = [k for k, path in enumerate(paths) if not path.exists()]
    rows, (units, columns) = sum(part.rows for part in parts), starts[0].inner.shape
    together = side_by_side(rows, columns - 1, units, context.runtime.allowed_bytes)
    for k, found in (_in_tasks if together else _in_turn)(starts, left, parts, mean, ascent, context):
        _store(paths[k], found)
    return [_stored(path, start) for path, start in zip(paths, starts, strict=True)]


def _in_tasks(starts, left, parts, mean, ascent, context) -> Iterator[tuple[int, Reached]]:
    """Yield the number of each network left to be trained, and what it has reached, as they end."""
    whole, turns = replace(parts[0], stop=parts[-1].stop), -(-len(left) // context.runtime.threads)
    ascent = replace(ascent, seconds=ascent.seconds / max(turns, 1))
    context.runtime.progress(LABEL, 0, len(left))
    with context.transient({f"network {k}": starts[k].inner for k in left}) as references:

        def task(k):
            start = starts[k]
            how = references[f"network {k}"], start.scale, start.likelihood, ascent
            return NetworkAscent(context.scaling, whole, mean.name, *how)

        work = [(task(k), [Span(k, k + 1)]) for k in left]
        for done, outcome in enumerate(context.runtime.each(work, label=LABEL), start=1):
            if outcome.error is not None:
                raise outcome.error
            context.runtime.progress(LABEL, done, len(left))
            yield outcome.parts[0].start, outcome.result


def _in_turn(starts, left, parts, mean, ascent, context):
    """As `_in_tasks`, one network after the other."""
    objective = NetworkObjective(context, parts, mean)
    for k in left:
        yield k, replace(ascent, seconds=ascent.seconds / len(left))(objective, starts[k])


def _store(path, reached):
    network = reached.network
    numbers = [network.scale, network.likelihood.parameters[NOISE][0], reached.log_evidence, reached.evaluations]
    np.savez(path.with_suffix(".tmp.npz"), inner=network.inner, numbers=np.array([*numbers, reached.cut]))
    os.replace(path.with_suffix(".tmp.npz"), path)


def _stored(path, start) -> Reached:
    with np.load(path) as found:
        scale, noise, value, evaluations, cut = found["numbers"].tolist()
        likelihood = start.likelihood.with_parameters({NOISE: np.array([noise])})
        return Reached(Network(found["inner"], scale, likelihood), value, int(evaluations), bool(cut))


def _identity(start, parts, mean, ascent, context):
    """Hash of everything that a network depends on."""
    parameters = {name: value.tolist() for name, value in start.likelihood.parameters.items()}
    how = [start.likelihood.name, parameters, mean.name, start.scale, ascent.widths.tolist(), ascent.steps]
    rows = [context.scaling.digest, *(part.key for part in parts)]
    digest = hashlib.sha256(json.dumps([how, rows]).encode())
    digest.update(start.inner.tobytes())
    return digest.hexdigest()[:16]
