"""Steps of a fit: how often it repeats the tasks that a trial has timed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from bcmdist.api.plan.trial import BLOCKS, CLIENT, Timings
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.blocks.blocks import FIRST_BLOCK, LEARNING_BLOCK, ROUGH_ROUNDS, THINNING
from bcmdist.learning.cross_validation import JUDGED
from bcmdist.learning.evidence.objectives import BLOCKWISE
from bcmdist.learning.evidence_refinement import most_steps
from bcmdist.learning.prepare import SAMPLE_PER_QUERY, FitContext
from bcmdist.learning.search_length import evaluations
from bcmdist.learning.settings import Settings
from bcmdist.prediction.errors.held_out import CALIBRATION_ROWS, HELD_OUT_EVERY
from bcmdist.prediction.local.arrange import CALIBRATED_PARTITIONS, MEASURED_PARTITIONS
from bcmdist.prediction.local.halos import CONSIDERED, sizes_for
from bcmdist.prediction.measuring.measurement import residual_sample

# Rounds of cross-validation over neighbourhoods, and further passes until convergence.
JUDGEMENTS, PASSES = 27, 6


@dataclass(frozen=True)
class Step:
    """Rounds of similar tasks."""

    stage: str
    each: float
    """seconds of one task"""
    tasks: float = 1.0
    """tasks per round, shared among the threads; 0 for work of the client"""
    rounds: float = 1.0

    def seconds(self, threads: int, task: float, latency: float) -> float:
        """Return the wall time, with the overhead of each task and of each round, in seconds."""
        if not self.tasks:
            return self.rounds * self.each
        return self.rounds * (max(self.tasks / threads, 1.0) * (self.each + task) + latency)


def steps(case: FitContext, times: Timings, query: int, parts: int, rows: int) -> Iterator[Step]:
    """Yield all steps of a fit in order.

    Parameters
    ----------
    query : number of query points
    parts, rows : partitions and rows of the trial
    """
    if case.settings.learn:
        yield from _learning(case, times)
    yield from _training(case, times, rows)
    data, spatial, many = case.data, case.settings.partition == "spatial", len(case.parts)
    sizes = sizes_for(data.rows, data.inputs, case.settings.effort)
    left_out, small = (
        residual_sample(*of, data.inputs, sizes.core * spatial) for of in ((many, data.rows), (parts, rows))
    )
    held_out = CALIBRATION_ROWS * (HELD_OUT_EVERY if case.likelihood.corrected_by == "calibration" else 1)
    calibrated = CALIBRATED_PARTITIONS if spatial else max(1, round(held_out * many / data.rows))
    most = {"calibrate": calibrated, "borders": MEASURED_PARTITIONS, "errors": left_out.partitions}
    # A task takes longer the more rows are considered for a halo, or left out of local experts.
    longer = {"halos": min(CONSIDERED * sizes.with_halo, data.rows) / min(CONSIDERED * sizes.with_halo, rows)}
    longer["errors"] = left_out.count / small.count if spatial else 1.0
    sample = SAMPLE_PER_QUERY * query
    for (stage, label), (seconds, tasks) in times.items():
        if stage == "query":
            yield Step(stage, seconds * min(sample, data.rows) / min(sample, rows), 0.0)
        elif stage in ("cells", "experts", "passes", "halos", "errors"):
            limit = most.get(label, many)
            count = 0.0 if label == CLIENT else tasks * min(limit, many) / min(limit, parts)
            name = label if (stage, label) == ("experts", "calibrate") else stage
            yield Step(name, seconds / tasks * longer.get(label, 1.0), count, PASSES if stage == "passes" else 1.0)


def _training(case: FitContext, times: Timings, measured: int) -> Iterator[Step]:
    """Yield the training of shared variables, and the refinement of hyper-parameters by the committee's evidence."""
    method, settings, rows = case.method, case.settings, case.data.rows
    trained = min(method.trained_rows(settings) or rows, rows)
    rounds = method.training_rounds(settings, trained, measured)
    evaluated = most_steps(
        cast(str, settings.query_method), settings.effort, couples=RESIDUALS[method.residual].couples
    )
    repeated = {"train": trained / measured if rounds is None else rounds, "polish": evaluated * rows / measured}
    in_tasks = method.training is not None and method.trains_in_tasks(settings, trained, case.data.inputs)
    for (stage, label), (seconds, tasks) in times.items():
        if stage == "train" and in_tasks:
            each = seconds if label == CLIENT else seconds / tasks * repeated[stage]
            yield Step(stage, each, 0.0 if label == CLIENT else tasks)
        elif stage in repeated:
            yield Step(stage, seconds / tasks, 0.0 if label == CLIENT else tasks, repeated[stage])


def learning_block(case: FitContext) -> int:
    """Return the rows of a block in learning, after the first blocks."""
    settings, effort = case.settings, case.effort
    whole = settings.objective == "subset"
    size = effort.rows if whole else min(LEARNING_BLOCK, settings.partition_rows)
    return min(effort.block if _near(settings) else size, case.data.rows)


def _near(settings: Settings) -> bool:
    """Whether the evidence of neighbourhoods is maximised."""
    return settings.partition == "spatial" and settings.objective in BLOCKWISE


def _learning(case: FitContext, times: Timings) -> Iterator[Step]:
    """Yield the search for hyper-parameters."""
    effort, rows, size = case.effort, case.data.rows, learning_block(case)
    coarse, fine, further = evaluations(case)
    each = {stage: seconds / tasks for (stage, label), (seconds, tasks) in times.items() if label != CLIENT}
    if not _near(case.settings):
        sampled = min(effort.rows, rows)
        yield Step("learn", each["first"], -(-sampled // min(size, FIRST_BLOCK)), coarse)
        yield Step("learn", each["later"], -(-sampled // size), fine)
        return
    densities = 1 + math.ceil(math.log(size / rows) / math.log(THINNING) - 1e-9)
    yield Step("learn", each["later"], densities, coarse + fine)
    yield Step("learn", each["later"], densities * effort.per_density, further)
    judged = JUDGED.among(rows).count
    yield Step("learn", each["judge"], judged, JUDGEMENTS)
    centres = judged + (ROUGH_ROUNDS + effort.rounds * effort.per_density) * densities
    yield Step("learn", each["near"] / BLOCKS * centres, len(case.parts))
