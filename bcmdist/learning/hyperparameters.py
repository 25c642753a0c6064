"""Hyper-parameters of a fit: given, or learned from blocks of rows, from rows left out, from the whole committee."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.local_tasks import ClassEvidence, LeftOut
from bcmdist.learning.evidence.objectives import LocalObjective, improved_points
from bcmdist.learning.rescaling import rescale
from bcmdist.learning.search import AUTO_KERNELS, EFFORTS, learn, polish, with_given
from bcmdist.model.kernels import Kernel, kernel_parts, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.query import Query, prepare
from bcmdist.prediction.local.halos import sizes_for
from bcmdist.runtime import memory


@dataclass(frozen=True)
class LeftOutSizes:
    """Where rows are left out one by one: those in the middle of each."""

    count: int
    rows: int
    """of each"""

    @property
    def central(self) -> int:
        """Rows of each that are left out."""
        return max(1, int(CENTRAL_SHARE * self.rows))


CENTRAL_SHARE = 0.16
# Neighbourhoods in which rows are left out to settle what the evidence leaves open.
# They are many and far apart, so that rare neighbours that disagree are among them. For labels they are as large as
# what local experts see instead: how far a label is believed depends on how many others there are (of the noises tried
# on mnist, labels left out of 250 rows prefer .03, of 1000 rows .01; experts of 958 rows err on 2.5 % of validation
# labels at .05, on 2.3 % at .01).
JUDGED = LeftOutSizes(count=100, rows=250)
JUDGED_LABELS = LeftOutSizes(count=25, rows=1000)
# Which kernel does better depends on how many rows there are: those that decide are as many as local experts see, in
# neighbourhoods of so many rows together, and so many of them at least (on kin40k Matern 5/2 gains .003 nats on SE with
# 250 rows, .035 with 1000, .10 with all 9000; the settled SE is the better one with 1000 rows, not with 4500).
DECIDING_ROWS, DECIDING_LEAST = 20_000, 8
# Iterations that climb the evidence of the whole committee, and those that move query points: each of their
# evaluations passes over all rows twice.
POLISH_STEPS = 10
MOVING_STEPS = 5
# The softmax evidence costs about 30 times as much per row: fewer and smaller blocks, for two parameters.
RESCALE_BLOCK = 500
RESCALE_BLOCKS = 2


def find_hyperparameters(
    settings, blocks, near, reference, spread, likelihood, classes, runtime, log
) -> tuple[str, Kernel, Likelihood, dict[str, Any]]:
    """Kernel name, kernel and likelihood, learned or given, and what was found on the way.

    Parameters
    ----------
    blocks : `Blocks` over which the evidence is summed
    near : `CellBlocks` in which rows are left out; None where rows stay as they are stored
    reference : of the scaling
    spread : (D,) what the inputs as they were given were divided by
    log : path of the evaluations that are known already

    Raises
    ------
    InvalidOption, MemoryLimit, NotPositiveDefinite
    """
    inputs = len(spread)
    if not settings.learn:
        name = first_kernel(settings)
        kernel, likelihood = with_given(parse_kernel(name, inputs=inputs), likelihood, settings.set)
        return name, kernel, likelihood, {"kernels_tried": {}, "at_bounds": [], "evaluations": 0}
    wanted, likelihood = likelihood, likelihood.learned_as()
    classes = classes or ((0.0, 1.0) if likelihood is not wanted else None)
    objective = LocalObjective(runtime, blocks(None), scaling=reference, mean=settings.mean, classes=classes)
    rows = max(block.rows for block in objective.parts)
    rows = max(rows, _deciding(near, settings).rows) if near else rows
    _refuse_large_evidence(rows, inputs, settings, likelihood, runtime)
    remembered = CachedObjective(objective, log)

    def objective_for(kernel):
        if kernel is not None:
            objective.parts = blocks(kernel)
        return remembered

    try:
        learned = learn(
            objective_for,
            settings.kernel,
            likelihood,
            inputs=inputs,
            effort=EFFORTS[settings.effort],
            spread=spread,
            judges_for=_judges_for(near, reference, settings, likelihood, classes, runtime) if near else None,
        )
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(f"{error}; the last failure: {(remembered.reasons or ['none'])[-1]}") from error
    found = {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
        "settled": learned.settled,
    }
    kernel = learned.kernel
    if likelihood is not wanted and not wanted.needs_calibration:  # it has an evidence, without a gradient
        kernel = rescale(_class_evidence(objective.parts, reference, settings.mean, wanted, classes, runtime), kernel)
    return learned.kernel_name, kernel, learned.likelihood if likelihood is wanted else wanted, found


def _refuse_large_evidence(rows, inputs, settings, likelihood, runtime):
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=1))
    memory.refuse_above(
        memory.evidence_bytes(rows, inputs, kernels=kernels, laplace=not likelihood.normal),
        runtime.allowed_bytes,
        what="learning",
        remedy="give workers more memory, or lower --rows-per-expert or --effort",
    )


def _judges_for(near, reference, settings, likelihood, classes, runtime):
    """A function of a kernel: two judges of rows left out in neighbourhoods that are near in its metric.

    The first one is asked often; the second one sees as many rows as local experts do.
    """
    often, few = JUDGED_LABELS if likelihood.on_labels else JUDGED, _deciding(near, settings)

    def judge(where, metric_of):
        parts = near.around(metric_of, np.ones(where.count), where.rows)

        def value(kernel, likelihood):
            task = LeftOut(reference, kernel, settings.mean, likelihood, classes, where.central)
            return float(np.max(runtime.sum(task, parts, label="judge")))

        return value

    def judges(metric_of):
        settling, deciding = judge(often, metric_of), judge(few, metric_of)
        return settling, lambda kernel, likelihood: deciding(kernel, likelihood) / (few.count * few.central)

    return judges


def _deciding(near, settings):
    around = min(near.data.rows, sizes_for(near.data.rows, near.data.inputs, settings.effort).around)
    return LeftOutSizes(min(max(DECIDING_LEAST, DECIDING_ROWS // around), JUDGED.count), around)


def _class_evidence(blocks, reference, mean, likelihood, classes, runtime):
    """A function of a kernel: its evidence with a likelihood of classes over some small blocks."""
    small = [block.head(RESCALE_BLOCK) for block in blocks[:RESCALE_BLOCKS]]

    def evidence(kernel):
        task = ClassEvidence(reference, kernel, mean, likelihood, classes)
        return runtime.sum(task, small, label="learn")

    return evidence


def polished(objective, query, kernel_name, likelihood, query_method, found, log) -> tuple[Query, Likelihood]:
    """Query set and likelihood at which the evidence of the whole committee is higher; adds to what was found."""
    if query_method == "optimised":
        objective.points = improved_points(objective, query.kernel, likelihood, query.points, MOVING_STEPS)
    known, inputs = CachedObjective(objective, log), query.points.shape[1]
    best = polish(known, kernel_name, query.kernel, likelihood, inputs=inputs, steps=POLISH_STEPS)
    found["evaluations"] += best.evaluations
    found["at_bounds"] = best.at_bounds
    jitters = (objective.jitter,)  # of the objective: another one would be another committee
    return prepare(objective.points, kernel=best.kernel, mean=query.mean, jitters=jitters), best.likelihood


def first_kernel(settings) -> str:
    """The kernel's expression, or the one that stands for `auto` before learning."""
    return AUTO_KERNELS[0] if settings.kernel == "auto" else settings.kernel
