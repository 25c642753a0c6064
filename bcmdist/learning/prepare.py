"""Prepare a fit: survey the data, then determine scaling, hyper-parameters and query set.

One pass over the data checks every row; nothing is written before all rows have passed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from bcmdist.data.dataset import Dataset
from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition, evenly, partitions
from bcmdist.data.schema import Schema
from bcmdist.data.slices import share_between
from bcmdist.experts.limits import expert_fits, refuse_expert_of
from bcmdist.learning.basis_evidence import BasisBudget, warn_of_poor_basis
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.blocks.blocks import LEARNING_BLOCK, Blocks, CellBlocks, SampleBlocks
from bcmdist.learning.category_lengthscales import shared_by, unordered_values
from bcmdist.learning.cells import TREE_SAMPLE, grow_cells
from bcmdist.learning.choices import (
    MANY_CLASSES,
    choose_likelihood,
    refuse_target_variance,
    warn_of_data,
    warn_of_roles,
    warn_of_slices,
)
from bcmdist.learning.column_roles import column_roles
from bcmdist.learning.decisions import LEAVE_ONE_OUT
from bcmdist.learning.evidence.objectives import BLOCKWISE
from bcmdist.learning.evidence_refinement import polished
from bcmdist.learning.experts import method_of, query_points, shared_of
from bcmdist.learning.first_look import first_look
from bcmdist.learning.hyperparameters import (
    LINEAR,
    InputColumns,
    find_hyperparameters,
    first_kernel,
    first_mean,
    may_slope,
    with_numbered_columns,
)
from bcmdist.learning.input_warping import requested_warps, warped_scaling
from bcmdist.learning.like import model_like, refuse_unknown_classes
from bcmdist.learning.method import Method, sample_rows
from bcmdist.learning.outputs import ONE_OUTPUT, OutputColumns, output_columns, with_output
from bcmdist.learning.point import Point
from bcmdist.learning.prediction_inputs import read_prediction_inputs
from bcmdist.learning.query_count import least_query, most_query, query_count
from bcmdist.learning.query_selection import STOPPING, automatic_count, working_targets
from bcmdist.learning.rules import TWO_CLASSES
from bcmdist.learning.search import EFFORTS, Effort
from bcmdist.learning.search_length import evaluations
from bcmdist.learning.settings import Settings
from bcmdist.learning.settings_checks import with_objective
from bcmdist.learning.survey import Survey, SurveyResult, schema_of
from bcmdist.learning.target_choice import choose_scaling
from bcmdist.learning.time_limit import TimeLimit, time_limit
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import kernel_parts, parse_kernel
from bcmdist.model.likelihoods import Likelihood, make_likelihood, tasks
from bcmdist.model.mean import Mean
from bcmdist.model.model import Model
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.shared.weights import Weights
from bcmdist.model.targets import class_numbers
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.progress import Meter
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference, ModelStore

# Rows sampled per query point for k-means, and the minimum sample: enough for stable centres.
SAMPLE_PER_QUERY = 10
SAMPLE_LEAST = 1000
SAMPLE_BYTES = 2**26  # limit on the bytes of a sample, which is sent over the network
EVALUATIONS = "evaluations.jsonl"
# Rows whose evidence fitc and sor maximise by default, in evenly spread partitions: each evaluation reads them twice.
REFINED_ROWS = 50_000


@dataclass(frozen=True)
class FitResources:
    """Directories in which a fit is prepared, and the timer of its stages."""

    stages: StageTimer
    scratch: str
    """directory for the files from which an interrupted learning run resumes"""
    rows_url: str
    """path or URL, readable by all workers, where sampled rows are stored"""

    @property
    def log(self) -> str:
        """Path of the log of objective evaluations (`CachedObjective`)."""
        return f"{self.scratch}/{EVALUATIONS}"


def survey(data: Dataset, settings: Settings, runtime: Runtime, *, among: Sequence[int] = ()) -> SurveyResult:
    """Check every row of the data, or of the partitions numbered in `among`, in one pass; writes nothing."""
    schema = schema_of(data)
    settings = with_numbered_columns(settings, KernelColumns(data.inputs, schema))
    column_roles(settings.coordinates, schema, data.inputs)  # refuses names that do not exist
    parts, method = partitions(data, settings.partition_rows), method_of(settings)
    outputs = output_columns(settings, schema, data.inputs, data.url)
    method.refuse_data(settings, first_kernel(settings, outputs), data.inputs, data.rows)
    task, likelihood = settings.task, settings.likelihood
    if likelihood is None and task is not None:  # for classification: one that accepts any labels
        likelihood = MANY_CLASSES if task == "classification" else tasks()[task][0]
    largest = _largest_sample(data)
    sample = min(TREE_SAMPLE, largest) if settings.partition == "spatial" else SAMPLE_LEAST
    needed = SAMPLE_PER_QUERY * most_query(settings, data), min(sample_rows(method, settings), largest)
    sample = max(sample, _learning_rows(settings, data), *needed)
    look = Survey(settings.seed, sample, likelihood, outputs.columns)
    shared = min(least_query(settings, data), data.rows) + Mean(first_mean(settings, outputs)).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(first_kernel(settings, outputs), inputs=data.inputs))
    least = make_likelihood(likelihood or "gaussian", TWO_CLASSES)  # the number of classes is not known yet
    refuse_expert_of(parts, shared, kernels, runtime, least, residual=method.residual)
    return runtime.sum(look, [parts[k] for k in among] or parts, label="survey")


@dataclass(frozen=True)
class FitContext:
    """Data, settings and survey results of a fit, before anything is learned."""

    data: Dataset
    surveyed: SurveyResult
    settings: Settings
    runtime: Runtime
    schema: Schema
    likelihood: Likelihood
    classes: tuple[float, ...] | None
    scaling: Scaling
    parts: list[Partition]
    inputs: np.ndarray
    """inputs of the survey's sample, scaled, (n, D)"""
    sliced: float
    """share of the variance of the targets that lies between partitions"""
    sloping: bool
    """whether a linear mean may be chosen; with many inputs its weights may not fit in memory"""
    warps: Mapping[int, str]
    """kinds of warps asked for, by number of the input (`input_warping.requested_warps`)"""
    outputs: OutputColumns = ONE_OUTPUT
    """inputs that name a row's output, where there are several"""
    places: np.ndarray | None = None
    """inputs of future predictions, (m, D), in original units; None if unknown"""
    limit: TimeLimit = field(default_factory=TimeLimit)

    @property
    def method(self) -> Method:
        return method_of(self.settings)

    @property
    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest value of each scaled input, (D,) each."""
        return self.scaling.inputs(self.surveyed.x.low), self.scaling.inputs(self.surveyed.x.high)

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.settings.effort]


def prepare_model(
    data: Dataset, surveyed: SurveyResult, settings: Settings, runtime: Runtime, store: ModelStore, place: FitResources
) -> tuple[Model, dict]:
    """Return the model for surveyed data, and the findings of preparation by their field names in `Facts`."""
    limit = time_limit(settings)
    case, like = replace(fit_context(data, surveyed, settings, runtime), limit=limit), model_like(settings)
    look = first_look(case)
    with place.stages("learn"):
        if settings.learn:
            case = replace(case, places=read_prediction_inputs(settings, data, SAMPLE_LEAST, runtime))
        if like:
            scaling, of_scaling = like.scaling, list[dict[str, Any]]()
            refuse_unknown_classes(like, case.classes, case.schema, case.data.url)
            case = replace(case, likelihood=like.likelihood, classes=like.classes, schema=like.schema)
        else:
            scaling, of_scaling = choose_scaling(case, store, place.rows_url)
        case = replace(case, scaling=scaling, inputs=scaling.inputs(surveyed.sample.X))
        array = store.put_arrays({"scaling": scaling_to_array(scaling)})["scaling"]
        reference = BlobReference(store.storage.url, array)
        kernel_name, kernel, likelihood, mean, found = _learned(case, reference, store, place)
        found["decisions"] = of_scaling + found["decisions"]
        groups = shared_by(kernel, case.schema.groups)
    errors = None
    if case.method.capabilities.input_errors:
        with place.stages("inputs"):
            start = Point(kernel_name, kernel, likelihood, -math.inf, groups=groups)
            context = training_context(case, groups, reference, store, place, found)
            point, errors = case.method.learn_input_errors(start, context, mean, settings)
            kernel, likelihood = point.kernel, point.likelihood
    with place.stages("query"):
        shared = make_shared(case, kernel, likelihood, Mean(mean), found)
    context = training_context(case, groups, reference, store, place, found)
    if case.method.training:
        with place.stages("train"):
            shared, likelihood = case.method.train(shared, likelihood, context)
    if case.settings.objective == "committee":
        with place.stages("polish"):
            context = replace(context, parts=case.parts if settings.objective else evenly(case.parts, REFINED_ROWS))
            shared, likelihood = refined_by_evidence(case, shared, kernel_name, likelihood, context, place.log)
    cells = None
    if settings.partition == "spatial":
        with place.stages("cells"):
            cells, found["cells"] = grow_cells(case.inputs, kernel, data.rows, settings)
    repeats = {"share": surveyed.replicates.share, "deviation": surveyed.replicates.deviation}
    found |= {"between_partitions": case.sliced, "companions": data.companions, "repeats": repeats}
    found |= {"look": look, "labels": _labels(case, kernel), "whole_targets": surveyed.labels and len(surveyed.labels)}
    about = (settings.x, settings.y, case.classes, cells, case.schema, settings.precision, errors)
    return Model(case.scaling, shared, likelihood, kernel_name, *about), found


def fit_context(data, surveyed, settings, runtime) -> FitContext:
    """Return what learning needs; warn of unusual data, and refuse experts that do not fit in memory."""
    schema = with_output(schema_of(data), settings.output)
    outputs = output_columns(settings, schema, data.inputs, data.url)
    likelihood, classes = choose_likelihood(data, surveyed, settings, schema)
    settings = with_objective(settings, likelihood)
    refuse_target_variance(data, settings, likelihood)
    likelihood = likelihood.for_outputs(len(outputs.columns)) if outputs else likelihood
    warn_of_data(data, surveyed, settings, schema, likelihood)
    warn_of_roles(data, surveyed, settings, schema, likelihood)
    warps = requested_warps(settings, surveyed, schema, data.url)
    scaling = warped_scaling(surveyed, warps, likelihood.units, schema, outputs)
    settings = with_numbered_columns(settings, KernelColumns(data.inputs, schema, scaling.x_scale), warn=True)
    parts = partitions(data, settings.partition_rows)
    y, starts = outputs.standardised(surveyed.sample.obs.y, surveyed.sample.X), np.array([p.start for p in parts])
    sliced = share_between(y, surveyed.sample.row, starts)
    warn_of_slices(data, settings, likelihood, sliced)
    least, residual = min(least_query(settings, data), data.rows), method_of(settings).residual
    kernel = parse_kernel(first_kernel(settings, outputs), inputs=data.inputs)
    shared = least + Mean(first_mean(settings, outputs)).weights(data.inputs)
    refuse_expert_of(parts, shared, kernel_parts(kernel), runtime, likelihood, residual=residual)
    linear = Mean(outputs.mean(LINEAR)).weights(data.inputs)
    fits = expert_fits(parts, linear, kernel, runtime, likelihood, residual=residual)
    sloping = may_slope(settings, likelihood) and fits(least)
    about = (schema, likelihood, classes, scaling, parts, scaling.inputs(surveyed.sample.X), float(sliced))
    return FitContext(data, surveyed, settings, runtime, *about, sloping, warps, outputs)


def _learned(case, reference, store, place):
    """Return the hyper-parameters, learned or of the settings, in the form of `find_hyperparameters`."""
    near, blocks = learning_blocks(case, reference, store, place)
    roles = column_roles(case.settings.coordinates, case.schema, case.data.inputs)
    sums = case.method.capabilities.sums and case.settings.objective != "subset"  # one block, and memory for each term
    columns = InputColumns(case.scaling.x_scale, case.schema.groups, case.outputs, roles if sums else None)
    budget = BasisBudget(case.settings, *case.box)
    figure = "log density" if case.settings.objective == LEAVE_ONE_OUT else "log evidence"
    learned = find_hyperparameters(
        case.settings,
        blocks,
        near,
        reference,
        columns,
        case.likelihood,
        case.classes,
        case.runtime,
        place.log,
        sloping=case.sloping,
        representable=budget,
        meter=Meter(sum(evaluations(case)), figure) if case.settings.learn else None,
        limit=case.limit,
    )
    budget.warn(taken=learned[0])
    return learned


def learning_blocks(case, reference, store, place) -> tuple[CellBlocks | None, Blocks | None]:
    """Return neighbourhoods of rows, and the blocks to learn from: these neighbourhoods, or sampled rows.

    There are no neighbourhoods (None) unless the partition is spatial and the objective is a sum over blocks. Both are
    None if nothing is learned.
    """
    settings, effort = case.settings, case.effort
    if settings.partition == "spatial" and settings.objective in BLOCKWISE:
        near = _cell_blocks(case, reference, store, place.scratch, effort.block)
        return near, near
    if not settings.learn:
        return None, None
    rows = np.arange(min(_learning_rows(settings, case.data), len(case.inputs)))  # the sample is in random order
    size = len(rows) if settings.objective == "subset" else min(LEARNING_BLOCK, settings.rows_per_expert)
    X, obs = case.surveyed.sample.X[rows], case.surveyed.sample.obs[rows]
    return None, SampleBlocks(X, obs, case.data.companions, place.rows_url, size=size)


def _cell_blocks(case, reference, store, url, size) -> CellBlocks:
    """Neighbourhoods of `size` rows, stored in the directory `url`."""
    places = None if case.places is None else case.scaling.inputs(case.places)
    how: dict[str, Any] = {"per_density": case.effort.per_density, "seed": case.settings.seed, "places": places}
    how |= {"reference": reference, "size": size, "runtime": case.runtime, "store": store, "url": url}
    return CellBlocks(case.data, case.parts, case.inputs, **how)


def refined_by_evidence(case, shared, kernel_name, likelihood, context, log) -> tuple[Shared, Likelihood]:
    """Refine query points and likelihood by maximising the log evidence of the whole committee."""
    query, settings = cast(Query, shared), case.settings  # settings refuse other shared variables

    def choose(kernel, likelihood, turn):
        basis = _basis_inputs(case, kernel, likelihood, query.mean, context.count)
        return query_points(replace(basis, seed=settings.seed + turn))

    start = Point(kernel_name, query.kernel, likelihood, -math.inf, groups=context.groups)
    how = {"residual": case.method.capabilities.climbs, "method": settings.query_method, "choose": choose, "log": log}
    return polished(query, start, context, **how)


def training_context(case, groups, reference, store, place, found) -> TrainingContext:
    """The `TrainingContext` of the fit: all partitions, and samples of rows stored for the workers."""

    def sampled(rows, size):
        some = np.arange(min(rows, len(case.inputs)))  # the sample is in random order
        X, obs = case.surveyed.sample.X[some], case.surveyed.sample.obs[some]
        return SampleBlocks(X, obs, case.data.companions, f"{place.rows_url}/train", size=size).cut(size)

    def near(kernel, shares, size):
        return _cell_blocks(case, reference, store, f"{place.scratch}/near", size).neighbourhoods(kernel, shares, size)

    settings, asked = case.settings, found.get("query_asked", 0)  # 0 before the number of query points is chosen
    where, options = (reference, store, place.scratch), settings.of(case.method.options)
    how = {"learn": settings.learn, "effort": settings.effort, "count": asked, "options": options, "found": found}
    how |= {"classes": case.classes, "groups": groups, "limit": case.limit}
    how |= {"near": near} if settings.partition == "spatial" else {}
    return TrainingContext(case.runtime, case.parts, sampled, *where, **how)


def make_shared(case, kernel, likelihood, mean, found) -> Shared:
    """Make the shared variables; record the requested number of query points or functions in `found`."""
    settings, data = case.settings, case.data
    count = query_count(settings, data)
    if count == "auto":
        weights, residual = mean.weights(data.inputs), case.method.residual
        fits = expert_fits(case.parts, weights, kernel, case.runtime, likelihood, residual=residual)
        noise = likelihood.noise(_observed(case, likelihood))
        count, found["degrees_estimated"] = automatic_count(case.inputs, noise, data.rows, kernel, fits)
        count = min(count, settings.query_most or count)
    found["query_asked"] = count
    places = read_prediction_inputs(settings, data, max(SAMPLE_LEAST, SAMPLE_PER_QUERY * count), case.runtime)
    basis = _basis_inputs(case, kernel, likelihood, mean, count)
    made = shared_of(case.method, replace(basis, places=None if places is None else case.scaling.inputs(places)))
    if case.method.training is None and made.kind == Weights.kind:  # excludes weights trained later, and query values
        warn_of_poor_basis(made, basis)
    if settings.query_method in STOPPING:
        found["query_asked"] = made.functions
    return made


def _basis_inputs(case, kernel, likelihood, mean, count) -> BasisInputs:
    """`BasisInputs` from the sample at given hyper-parameters."""
    obs = _observed(case, likelihood)
    return BasisInputs(
        sample=case.inputs,
        targets=working_targets(likelihood, obs, mean, case.inputs),
        noise=likelihood.noise(obs),
        learned_noise=likelihood.learned_noise(obs),
        rows=case.data.rows,
        kernel=kernel,
        mean=mean,
        count=count,
        method=case.settings.query_method,
        seed=case.settings.seed,
        residual=case.method.residual,
        low=case.box[0],
        high=case.box[1],
        row=case.surveyed.sample.row,
        learned=case.settings.learn,
        options=case.settings.of(case.method.options),
    )


def _observed(case, likelihood) -> Observations:
    """Observations of the sample in the units of the model."""
    obs = class_numbers(case.surveyed.sample.obs, case.classes)
    return case.scaling.observations(obs, likelihood.units, case.inputs)


def _labels(case, kernel):
    """Number of distinct values of each input that the kernel treats as unordered, by column name."""
    found = unordered_values(case.surveyed.sample.X, kernel) if case.settings.learn else {}
    return {case.schema.columns[k] if case.schema.columns else f"X[{k}]": count for k, count in found.items()}


def _largest_sample(data):
    """Maximum rows of a sample, which is sent over the network."""
    return SAMPLE_BYTES // (memory.FLOAT * data.inputs)


def _learning_rows(settings, data):
    """Sampled rows whose evidence is maximised; 0 if learning uses neighbourhoods, or if nothing is learned."""
    rows = EFFORTS[settings.effort].rows
    if settings.objective == "subset":
        return rows
    sampled = settings.learn and settings.partition == "chunks"
    return min(rows, max(SAMPLE_LEAST, _largest_sample(data))) if sampled else 0
