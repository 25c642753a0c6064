"""Stages of a fit as tasks: number, work, rounds, and rows read."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bcmdist.api.plan import work
from bcmdist.api.plan.rates import Rates
from bcmdist.api.plan.work import Work
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.blocks.blocks import FIRST_BLOCK, LEARNING_BLOCK, ROUGH_ROUNDS, THINNING
from bcmdist.learning.cross_validation import JUDGED
from bcmdist.learning.evidence.objectives import BLOCKWISE
from bcmdist.learning.evidence_refinement import most_steps
from bcmdist.learning.experts import method_of
from bcmdist.learning.hyperparameters import AUTO_KERNEL, may_slope, requested_kernel
from bcmdist.learning.method import left_out_errors
from bcmdist.learning.model_selection import CONTENDERS
from bcmdist.learning.query_selection import KMEANS_ITERATIONS
from bcmdist.learning.search import AUTO_KERNELS, EFFORTS, MEAN_STEPS, START_LENGTHSCALES
from bcmdist.learning.settings import Settings
from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.errors import heteroscedasticity
from bcmdist.prediction.errors.class_probabilities import CALIBRATION_ROWS
from bcmdist.prediction.errors.error_distribution import LEAST
from bcmdist.prediction.errors.held_out import HELD_OUT_EVERY
from bcmdist.prediction.local.arrange import CALIBRATED_PARTITIONS, MEASURED_PARTITIONS
from bcmdist.prediction.local.halos import CANDIDATE_ROWS, sizes_for
from bcmdist.prediction.measuring import measurement
from bcmdist.runtime.memory import FLOAT

# Evaluations of the evidence per allowed step of a search, with one common lengthscale and afterwards. For exact
# likelihoods from elevators (1.13, .76) and uci_power (1.10, .63), for others from bike_hourly_counts (1.02, .48) and
# magic (.80, .35).
EVALUATIONS = {True: (1.1, 0.7), False: (0.9, 0.4)}
# Rounds of cross-validation over neighbourhoods; further passes until convergence; and evaluations to learn the
# process of a varying noise scale, in two searches.
JUDGEMENTS, PASSES, PROCESS_EVALUATIONS = 27, 6, 4 * heteroscedasticity.STEPS


@dataclass(frozen=True)
class Planned:
    """Properties of a fit that determine its cost."""

    settings: Settings
    likelihood: Likelihood
    rows: int
    inputs: int
    chunk_rows: int
    parts: int
    """number of partitions"""
    largest: int
    """rows of the largest partition"""
    query: int
    """approximate number of query points"""
    several: bool
    """whether further passes follow the first"""
    spread: bool
    """whether the scales of the inputs differ"""

    @property
    def expert_rows(self) -> float:
        """Mean number of rows of a partition."""
        return self.rows / self.parts

    @property
    def apart(self) -> float:
        """Rows read for a single partition: at least one whole chunk."""
        return max(self.expert_rows, self.chunk_rows)

    @property
    def spatial(self) -> bool:
        return self.settings.partition == "spatial"

    @property
    def around(self) -> int:
        """Number of rows of a local expert."""
        return min(sizes_for(self.rows, self.inputs, self.settings.effort).with_halo, self.rows)

    @property
    def core(self) -> int:
        """Number of rows of a cell."""
        return sizes_for(self.rows, self.inputs, self.settings.effort).core


@dataclass(frozen=True)
class Step:
    """Rounds of similar tasks."""

    stage: str
    tasks: float
    """tasks per round"""
    work: Work
    """work of one task"""
    size: float
    """rows of the matrices of a task"""
    rounds: float = 1.0
    read: float = 0.0
    """rows read by a task"""
    kept: bool = False
    """whether the rows are kept in the memory of the worker"""
    alone: bool = False
    """whether the tasks run in the client"""

    def seconds(self, rates: Rates, row_seconds) -> float:
        """Return the wall time of all rounds; the tasks of a round are shared among the threads."""
        one = rates.seconds(self.work, self.size) + self.read * row_seconds
        if self.alone:
            return self.rounds * self.tasks * one
        turns = max(self.tasks / rates.threads, 1.0 if self.tasks else 0.0)
        if self.kept:
            return float(self.rounds * (np.ceil(turns) * one + rates.kept_round))
        return self.rounds * (turns * (one + rates.task) + rates.round)


def steps(case: Planned) -> Iterator[Step]:
    """Yield all steps of a fit in order."""
    yield Step("survey", case.parts, Work(), case.expert_rows, read=case.expert_rows)
    if case.settings.learn:
        yield from _learning(case)
    sample = 10 * case.query
    means = Work(moved=2 * FLOAT * min(sample, case.rows) * case.query * KMEANS_ITERATIONS)
    yield Step("query", 1, means + work.factored(case.query), case.query, alone=True)
    yield from _training(case)
    if case.settings.objective == "committee":
        told = _message(case, own=False)
        couples = RESIDUALS[method_of(case.settings).capabilities.climbs].couples
        rounds = most_steps(case.settings.query_method, case.settings.effort, couples=couples)
        yield Step("polish", case.parts, told + 3 * told, case.expert_rows, rounds=rounds, read=case.expert_rows)
    if case.spatial:
        yield Step("cells", case.parts, Work(), case.expert_rows, rounds=2, read=case.expert_rows)
    yield Step("experts", case.parts, _message(case), case.expert_rows, read=case.expert_rows)
    if case.several:
        again = _message(case, own=False)
        yield Step("passes", case.parts, again, case.expert_rows, rounds=PASSES, read=case.expert_rows)
    if case.likelihood.categorical:
        yield from _calibration(case)
    if case.spatial:
        yield from _halos(case)
    measured = case.likelihood.measured and case.rows >= LEAST
    if measured and left_out_errors(method_of(case.settings), case.settings):
        yield from _errors(case)


def _message(case, *, own=True) -> Work:
    """Return the work of one partition's message; `own`: whether linearised at the expert's own mode."""
    n, exact, method = case.expert_rows, case.likelihood.exact, method_of(case.settings)
    if not RESIDUALS[method.residual].couples:
        copies = case.likelihood.each.copies
        models = method.cost(case.settings, case.rows).models
        return models * work.message_apart(n, case.query, exact=exact, copies=copies)
    ep = case.settings.approximation == "ep"
    return work.message(n, case.query, exact=exact, copies=case.likelihood.copies, ep=ep, own=own)


# --- Learning ---


def _training(case) -> Iterator[Step]:
    """Yield the training of shared variables, for methods that train them."""
    method = method_of(case.settings)
    training = method.training
    if not training:
        return
    rows = min(training.rows or case.rows, case.rows)
    cost = method.cost(case.settings, rows)
    if cost.messages:
        blocks = -(-rows // (training.block or case.settings.rows_per_expert))
        told = work.message_apart(rows / blocks, case.query, exact=True)
        rounds = cost.models * cost.messages
        yield Step("train", blocks, told, rows / blocks, rounds=rounds, kept=True)


def evaluations(case: Planned) -> tuple[float, float, float]:
    """Estimate the evaluations of the evidence: in the first search, in the search that follows, and in further rounds.

    The first search uses the first blocks, the second one blocks of rows that are near in the metric found by the
    first. Further rounds are made for spatial partitions only.
    """
    effort = EFFORTS[case.settings.effort]
    exact = case.likelihood.learned_as().exact
    first, later = EVALUATIONS[exact]
    others = len(AUTO_KERNELS) - 1 if requested_kernel(case.settings) == AUTO_KERNEL else 0
    climbs = len(START_LENGTHSCALES) + case.spread
    coarse = first * (climbs + others) * effort.isotropic_steps
    slopes = may_slope(case.settings, case.likelihood) and not case.spatial
    fine = later * (effort.steps + others * effort.isotropic_steps + 2 * slopes * MEAN_STEPS)
    asked = (1 + case.spread) * len(START_LENGTHSCALES) + 3 * others, 2 + 2 * others
    rounds = effort.rounds * effort.steps // 2 + min(others, CONTENDERS) * effort.isotropic_steps
    return coarse + asked[0], fine + asked[1], later * rounds if case.spatial else 0.0


def _learning(case) -> Iterator[Step]:
    """Yield the search for hyper-parameters."""
    effort, likelihood = EFFORTS[case.settings.effort], case.likelihood.learned_as()
    coarse, fine, further = evaluations(case)

    def climb(blocks, rows, rounds):
        one = work.evidence(rows, exact=likelihood.exact, processes=likelihood.processes)
        return Step("learn", blocks, one, rows, rounds=rounds, kept=True)

    if not case.spatial or case.settings.objective not in BLOCKWISE:
        rows = min(effort.rows, case.rows)
        largest = rows if case.settings.objective == "subset" else min(LEARNING_BLOCK, case.settings.rows_per_expert)
        for size, rounds in ((min(largest, FIRST_BLOCK), coarse), (largest, fine)):
            blocks = -(-rows // size)
            yield climb(blocks, rows / blocks, rounds)
        return
    size = min(effort.block, case.rows)
    densities = 1 + int(np.ceil(np.log(size / case.rows) / np.log(THINNING) - 1e-9))
    yield climb(densities, size, coarse + fine)
    yield climb(densities * effort.per_density, size, further)
    judged = JUDGED.among(case.rows)
    one = work.left_out(judged.rows, exact=likelihood.exact, processes=likelihood.processes)
    yield Step("learn", judged.count, one, judged.rows, rounds=JUDGEMENTS, kept=True)
    yield _looking(case, judged.count)
    for _ in range(ROUGH_ROUNDS + effort.rounds):
        yield _looking(case, densities * effort.per_density)


def _looking(case, centres):
    """Return the step that finds the neighbourhoods of some centres, in one pass over the rows."""
    near = work.nearest(case.expert_rows, centres)
    return Step("learn", case.parts, near, case.expert_rows, read=case.expert_rows)


# --- Held-out rows: calibration and errors ---


def _calibration(case) -> Iterator[Step]:
    """Yield the calibration of class probabilities.

    Rows are held out of some partitions, which are absorbed twice; or leave-one-out predictions are used, where the
    likelihood has probabilities.
    """
    times = 2 * HELD_OUT_EVERY if case.likelihood.needs_calibration else 1
    parts = min(case.parts, max(1, times * CALIBRATION_ROWS / 2 / case.expert_rows))
    again = _message(case) + Work(solve=2 * case.expert_rows * case.query**2)
    yield Step("calibrate", parts, 2 * again, case.expert_rows, read=case.apart)


def _local(case, predicted) -> Work:
    """Return the work of a local expert that predicts at `predicted` rows."""
    how = {"exact": case.likelihood.exact, "copies": case.likelihood.copies}
    return work.local_expert(case.with_halo, predicted, case.query, **how)


def _halos(case) -> Iterator[Step]:
    """Yield the planned steps (`Step`) that prepare local prediction.

    They are the search for the rows around each cell (halos), the measurement of jumps at cell borders and of the loss
    with half of the query points and, for class likelihoods, the calibration of probabilities.
    """
    cells = case.expert_rows / case.core
    candidates = min(CANDIDATE_ROWS, case.rows)
    found = cells * work.halo(case.with_halo, candidates)
    yield Step("halos", case.parts, found, case.with_halo, read=case.expert_rows)
    close = 3 * _local(case, 10) + 2 * work.halving(case.with_halo, case.core, case.query)
    yield Step("halos", min(MEASURED_PARTITIONS, case.parts), close, case.with_halo, read=candidates)
    if case.likelihood.categorical:
        left = cells * _local(case, case.core)
        yield Step("halos", min(CALIBRATED_PARTITIONS, case.parts), left, case.with_halo, read=candidates)


def _errors(case) -> Iterator[Step]:
    """Yield the measurement of the error distribution on left-out rows."""
    n, k = case.expert_rows, measurement.ROWS / min(measurement.PARTITIONS, case.parts)
    told, parts = min(measurement.ROWS, case.rows), min(measurement.PARTITIONS, case.parts)
    if case.spatial:
        told = float(np.clip(measurement.LOCAL_SHARE * case.rows, *measurement.LOCAL_ROWS))
        cells, parts = told / case.core, min(case.parts, round(told / case.core))
        near = cells / parts * _local(case, case.core)
        yield Step("errors", parts, near, case.with_halo, read=min(CANDIDATE_ROWS, case.rows))
        k, parts = told / parts, -(-parts // measurement.COMMITTEE_EVERY)
    one = work.left_out_of_committee(n, min(k, n), case.query, exact=case.likelihood.exact)
    yield Step("errors", parts, one, n, read=case.apart)
    if case.settings.noise != "constant":
        blocks = min(heteroscedasticity.BLOCKS, told / heteroscedasticity.BLOCK)
        climbs = PROCESS_EVALUATIONS * blocks * work.evidence(heteroscedasticity.BLOCK, exact=True)
        yield Step("errors", 1, climbs, heteroscedasticity.BLOCK, alone=True)
