"""Everything before the first message: survey, scaling, hyper-parameters, query set.

One pass over the data checks every row; nothing is written before it has passed.
"""

import time
import warnings
from contextlib import contextmanager

import numpy as np

from bcmdist import memory
from bcmdist.errors import BcmdistWarning
from bcmdist.kernels import expression, kernel_parts, parse_kernel
from bcmdist.learning import AUTO_KERNELS, EFFORTS, learn, with_given
from bcmdist.likelihoods import TASKS, Gaussian, make_likelihood
from bcmdist.mean import Mean
from bcmdist.model import Model, to_lists
from bcmdist.partition import RUN_ROWS, Data, partitions
from bcmdist.prediction import BLOCK_ROWS
from bcmdist.query import prepare, select_points
from bcmdist.runtime import Runtime
from bcmdist.scaling import scaling_from, scaling_to_array
from bcmdist.settings import Settings
from bcmdist.store import BlobReference, ModelStore
from bcmdist.tasks import LocalEvidence, Survey, SurveyResult

# Rows sampled per query point for k-means, and the least: enough for centres to be stable.
SAMPLE_PER_QUERY = 10
SAMPLE_LEAST = 1000
# Rows of one partition whose evidence is computed while learning: the cost grows with the cube.
LEARNING_BLOCK = 1000


class Stages:
    """Seconds spent in named stages."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def added_to(self, earlier):
        """Earlier seconds by stage plus these."""
        return {n: earlier.get(n, 0.0) + self.seconds.get(n, 0.0) for n in {**earlier, **self.seconds}}


def survey(data: Data, settings: Settings, runtime: Runtime) -> SurveyResult:
    """One pass over the data that checks every row; nothing is written."""
    parts = partitions(data, settings.rows_per_expert)
    likelihood = settings.likelihood or (TASKS[settings.task] if settings.task else None)
    task = Survey(settings.seed, max(SAMPLE_LEAST, SAMPLE_PER_QUERY * settings.query), likelihood)
    shared = min(settings.query, data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=data.inputs))
    _refuse_large_expert(parts, shared, kernels, runtime, laplace=likelihood not in (None, "gaussian"))
    return runtime.sum(task, parts, label="survey")


def prepare_model(
    data: Data, surveyed: SurveyResult, settings: Settings, runtime: Runtime, store: ModelStore, stages: Stages
) -> tuple[Model, dict]:
    """Settle a model on surveyed data; also what learning found, JSON-ready."""
    _warn(data, surveyed, settings)
    likelihood = make_likelihood(settings.likelihood or TASKS[settings.task or _infer_task(surveyed)])
    scaling = scaling_from(surveyed.x, surveyed.y, scale_targets=isinstance(likelihood, Gaussian))
    parts = partitions(data, settings.rows_per_expert)
    with stages("learn"):
        kernel_name, kernel, likelihood, found = _hyperparameters(settings, parts, scaling, likelihood, runtime, store)
    with stages("query"):
        sample = scaling.inputs(surveyed.sample.X)
        method, seed = settings.query_method, settings.seed
        points = select_points(sample, settings.query, kernel=kernel, method=method, seed=seed)
        query = prepare(points, kernel=kernel, mean=Mean(settings.mean))
    return Model(scaling, query, likelihood, kernel_name, settings.x, settings.y), found


def _infer_task(survey: SurveyResult):
    return "classification" if survey.binary else "regression"


def _warn(data, survey, settings):
    """Say what is odd about the data but can be worked with."""
    distinct = len(np.unique(survey.sample.X, axis=0))
    odd = [f"column {k} of {data.x} is constant and carries no information" for k in np.flatnonzero(survey.x.constant)]
    if survey.y.constant[0]:
        odd.append(f"all targets in {data.y} equal {survey.y.low[0]:g}")
    if distinct < settings.query:
        odd.append(f"{settings.query} query points were asked for, the data hold {distinct} distinct rows")
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def _hyperparameters(settings, parts, scaling, likelihood, runtime, store):
    """Kernel name, kernel and likelihood, learned or given, and what was found on the way."""
    inputs = len(scaling.x_mean)
    if not settings.learn:
        name = _kernel_name(settings)
        kernel, likelihood = with_given(parse_kernel(name, inputs=inputs), likelihood, settings.set)
        return name, kernel, likelihood, {"kernels_tried": {}, "at_bounds": [], "evaluations": 0}
    effort = EFFORTS[settings.effort]
    blocks = _learning_blocks(parts, effort.rows, settings.seed)
    laplace, kernels = (
        not isinstance(likelihood, Gaussian),
        kernel_parts(parse_kernel(_kernel_name(settings), inputs=1)),
    )
    memory.refuse_above(
        memory.evidence_bytes(max(b.rows for b in blocks), inputs, kernels=kernels, laplace=laplace),
        runtime.allowed_bytes,
        what="learning",
        remedy="give workers more memory or lower --rows-per-expert",
    )
    reference = BlobReference(store.storage.url, store.put_arrays({"scaling": scaling_to_array(scaling)})["scaling"])

    def objective(kernel, likelihood):
        task = LocalEvidence(
            reference, expression(kernel), to_lists(kernel), settings.mean, likelihood.name, to_lists(likelihood)
        )
        total = runtime.sum(task, blocks, label="learn")
        return (-np.inf if total.failures else total.value), total.gradient

    learned = learn(objective, settings.kernel, likelihood, inputs=inputs, effort=effort)
    found = {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
    }
    return learned.kernel_name, learned.kernel, learned.likelihood, found


def _learning_blocks(parts, rows, seed):
    """Some partitions, cut to `LEARNING_BLOCK` rows, of about `rows` rows in all."""
    blocks = [part.head(LEARNING_BLOCK) for part in parts]
    count = min(len(blocks), max(1, round(rows * len(blocks) / sum(block.rows for block in blocks))))
    chosen = np.random.default_rng(seed).choice(len(blocks), count, replace=False)
    return [blocks[k] for k in np.sort(chosen)]


def _kernel_name(settings):
    """The kernel's expression, or the one that stands for `auto` before learning."""
    return AUTO_KERNELS[0] if settings.kernel == "auto" else settings.kernel


def refuse_large_expert(parts, query, runtime, likelihood):
    """Raise `MemoryLimit` where the largest partition's expert would not fit a worker thread."""
    laplace = not isinstance(likelihood, Gaussian)
    _refuse_large_expert(parts, query.shared, kernel_parts(query.kernel), runtime, laplace=laplace)


def _refuse_large_expert(parts, shared, kernels, runtime, *, laplace):
    rows = max(part.rows for part in parts)
    data = parts[0].data
    memory.refuse_above(
        memory.expert_bytes(rows, shared, kernels=kernels, laplace=laplace) + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"expert of {rows} rows about {shared} shared variables",
        remedy="lower --rows-per-expert or --query, or give workers more memory",
    )


def refuse_large_prediction(data, query, runtime):
    """Raise `MemoryLimit` where predicting a block of rows would not fit a worker thread."""
    memory.refuse_above(
        memory.prediction_bytes(BLOCK_ROWS, query.shared, kernels=kernel_parts(query.kernel)) + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"prediction with {query.shared} shared variables",
        remedy="lower --query when fitting, or give workers more memory",
    )


def _reading_bytes(data):
    """A whole chunk is decoded even where a part of it is wanted; and what is kept of it."""
    return memory.FLOAT * 2 * (data.chunk_rows + RUN_ROWS) * data.inputs
