"""Everything before the first message: survey, scaling, hyper-parameters, query set.

One pass over the data checks every row; nothing is written before it has passed.
"""

import time
import warnings
from contextlib import contextmanager

import numpy as np

from bcmdist import memory
from bcmdist.errors import BcmdistWarning, InvalidOption, MemoryLimit, NotPositiveDefinite, UnsupportedTarget
from bcmdist.kernels import expression, kernel_parts, parse_kernel
from bcmdist.learning import AUTO_KERNELS, EFFORTS, learn, rescale, with_given
from bcmdist.likelihoods import CLASS_LIKELIHOODS, SVM, TASKS, Gaussian, OneHot, Softmax, make_likelihood
from bcmdist.mean import Mean
from bcmdist.model import Model, to_lists
from bcmdist.partition import RUN_ROWS, Data, partitions
from bcmdist.prediction import BLOCK_ROWS
from bcmdist.query import prepare
from bcmdist.runtime import Runtime
from bcmdist.scaling import scaling_from, scaling_to_array
from bcmdist.selection import (
    LEAST_QUERY,
    MOST_QUERY,
    automatic_count,
    select_points,
    working_noise,
    working_targets,
)
from bcmdist.settings import Settings
from bcmdist.store import BlobReference, ModelStore
from bcmdist.tasks.learning import ClassEvidence, LocalEvidence
from bcmdist.tasks.survey import MOST_CLASSES, Survey, SurveyResult
from bcmdist.tasks.targets import class_numbers

# Rows sampled per query point for k-means, and the least: enough for centres to be stable.
SAMPLE_PER_QUERY = 10
SAMPLE_LEAST = 1000
# Rows of one partition whose evidence is computed while learning: the cost grows with the cube.
LEARNING_BLOCK = 1000
# What stands for more than two classes by default: ten times as fast as softmax, exact in one pass, and on validation
# rows of letter, glass, wine, new_thyroid and svmguide2 better calibrated, mostly with a lower log loss too.
MANY_CLASSES = "onehot"

# The softmax evidence costs about 30 times as much per row: fewer and smaller blocks, for two parameters.
RESCALE_BLOCK = 500
RESCALE_BLOCKS = 2


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
    task = settings.task
    likelihood = settings.likelihood
    if likelihood is None and task is not None:  # for classes: any labels
        likelihood = MANY_CLASSES if task == "classification" else TASKS[task][0]
    look = Survey(settings.seed, max(SAMPLE_LEAST, SAMPLE_PER_QUERY * _most_query(settings)), likelihood)
    shared = min(_least_query(settings), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=data.inputs))
    least = make_likelihood(likelihood or "gaussian", 2)  # so far the number of classes is not known
    _refuse_large_expert(parts, shared, kernels, runtime, least)
    return runtime.sum(look, parts, label="survey")


def prepare_model(
    data: Data, surveyed: SurveyResult, settings: Settings, runtime: Runtime, store: ModelStore, stages: Stages
) -> tuple[Model, dict]:
    """Settle a model on surveyed data; also what learning found, JSON-ready."""
    _warn(data, surveyed, settings)
    likelihood, classes = _choose_likelihood(data, surveyed, settings)
    scaling = scaling_from(surveyed.x, surveyed.y, surveyed.exposure, likelihood.scaling)
    parts = partitions(data, settings.rows_per_expert)
    shared = min(_least_query(settings), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=data.inputs))
    _refuse_large_expert(parts, shared, kernels, runtime, likelihood)
    with stages("learn"):
        kernel_name, kernel, likelihood, found = _hyperparameters(
            settings, parts, scaling, likelihood, classes, runtime, store
        )
    with stages("query"):
        sample, mean = scaling.inputs(surveyed.sample.X), Mean(settings.mean)
        obs = scaling.observations(class_numbers(surveyed.sample.obs, classes), likelihood.scaling)
        noise, count = working_noise(likelihood, obs), settings.query
        if count == "auto":
            fits = _expert_fits(parts, mean.weights(data.inputs), kernel, runtime, likelihood)
            count, found["degrees_estimated"] = automatic_count(sample, noise, data.rows, kernel, fits)
        found["query_asked"] = count
        targets = working_targets(likelihood, obs, noise, mean, sample)
        method, seed = settings.query_method, settings.seed
        points = select_points(sample, count, kernel=kernel, method=method, targets=targets, noise=noise, seed=seed)
        query = prepare(points, kernel=kernel, mean=mean)
    return Model(scaling, query, likelihood, kernel_name, settings.x, settings.y, classes), found


def _choose_likelihood(data, surveyed, settings):
    """The likelihood that was asked for or fits the targets, and the class labels where it numbers classes."""
    labels = surveyed.labels
    binary = labels is not None and labels <= {0.0, 1.0}
    task = settings.task or ("classification" if binary else "regression")
    two = binary or (labels is not None and len(labels) == 2)
    name = settings.likelihood or (TASKS[task][0] if task != "classification" or two else MANY_CLASSES)
    if name in (*CLASS_LIKELIHOODS, "svm") and (settings.approximation == "ep" or settings.linearise != "own"):
        raise InvalidOption(
            f"{data.url}: expected --approximation laplace and --linearise own with the likelihood {name}, got "
            f"{settings.approximation} and {settings.linearise}; leave them out"
        )
    if name not in CLASS_LIKELIHOODS:
        return make_likelihood(name), tuple(sorted(labels)) if task == "classification" and not binary else None
    if labels is None:
        raise UnsupportedTarget(
            f"{data.url}: classification expects whole numbers as class labels in {data.y}, at most {MOST_CLASSES} "
            "different ones, got other targets; recode them or choose another --task"
        )
    classes = tuple(sorted(labels | {0.0, 1.0} if binary else labels))
    return make_likelihood(name, len(classes)), classes


def _warn(data, survey, settings):
    """Say what is odd about the data but can be worked with."""
    distinct = len(np.unique(survey.sample.X, axis=0))
    odd = [f"column {k} of {data.x} is constant and carries no information" for k in np.flatnonzero(survey.x.constant)]
    if survey.y.constant[0]:
        odd.append(f"all targets in {data.y} equal {survey.y.low[0]:g}")
    if settings.query != "auto" and distinct < settings.query:
        odd.append(f"{settings.query} query points were asked for, the data hold {distinct} distinct rows")
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def _hyperparameters(settings, parts, scaling, likelihood, classes, runtime, store):
    """Kernel name, kernel and likelihood, learned or given, and what was found on the way."""
    inputs = len(scaling.x_mean)
    if not settings.learn:
        name = _kernel_name(settings)
        kernel, likelihood = with_given(parse_kernel(name, inputs=inputs), likelihood, settings.set)
        return name, kernel, likelihood, {"kernels_tried": {}, "at_bounds": [], "evaluations": 0}
    effort = EFFORTS[settings.effort]
    blocks = _learning_blocks(parts, effort.rows, settings.seed)
    wanted, likelihood = likelihood, _learned_as(likelihood)
    classes = classes or ((0.0, 1.0) if likelihood is not wanted else None)
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
            reference,
            expression(kernel),
            to_lists(kernel),
            settings.mean,
            likelihood.name,
            to_lists(likelihood),
            classes,
        )
        total = runtime.sum(task, blocks, label="learn")
        reasons.add(total.reason)
        return (-np.inf if total.failures else total.value), total.gradient

    reasons: set[str] = set()
    try:
        learned = learn(objective, settings.kernel, likelihood, inputs=inputs, effort=effort)
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(f"{error}; the last failure: {max(reasons)}") from error
    found = {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
    }
    if not isinstance(wanted, Softmax):
        return learned.kernel_name, learned.kernel, learned.likelihood if likelihood is wanted else wanted, found
    small = [block.head(RESCALE_BLOCK) for block in blocks[:RESCALE_BLOCKS]]

    def softmax_evidence(kernel):
        task = ClassEvidence(reference, expression(kernel), to_lists(kernel), settings.mean, classes)
        return runtime.sum(task, small, label="learn")

    return learned.kernel_name, rescale(softmax_evidence, learned.kernel), wanted, found


def _learned_as(likelihood):
    """The likelihood whose evidence stands for one that has none, or a costly one, while learning."""
    if isinstance(likelihood, Softmax | SVM):
        return OneHot(max(2, likelihood.processes), noise_variance=np.full(1, 0.1))
    return likelihood


def _learning_blocks(parts, rows, seed):
    """Some partitions, cut to `LEARNING_BLOCK` rows, of about `rows` rows in all."""
    blocks = [part.head(LEARNING_BLOCK) for part in parts]
    count = min(len(blocks), max(1, round(rows * len(blocks) / sum(block.rows for block in blocks))))
    chosen = np.random.default_rng(seed).choice(len(blocks), count, replace=False)
    return [blocks[k] for k in np.sort(chosen)]


def _kernel_name(settings):
    """The kernel's expression, or the one that stands for `auto` before learning."""
    return AUTO_KERNELS[0] if settings.kernel == "auto" else settings.kernel


def _least_query(settings):
    """Query points that a fit has at least, where the data hold as many rows."""
    return LEAST_QUERY if settings.query == "auto" else settings.query


def _most_query(settings):
    return MOST_QUERY if settings.query == "auto" else settings.query


def _expert_fits(parts, weights, kernel, runtime, likelihood):
    """A function that says whether experts about so many query points and these mean weights may run."""

    def fits(count):
        try:
            _refuse_large_expert(parts, count + weights, kernel_parts(kernel), runtime, likelihood)
        except MemoryLimit:
            return False
        return True

    return fits


def refuse_large_expert(parts, query, runtime, likelihood):
    """Raise `MemoryLimit` where the largest partition's expert would not fit a worker thread."""
    _refuse_large_expert(parts, query.shared, kernel_parts(query.kernel), runtime, likelihood)


def _refuse_large_expert(parts, shared, kernels, runtime, likelihood):
    rows = max(part.rows for part in parts)
    data = parts[0].data
    coupled = isinstance(likelihood, Softmax) and likelihood.coupled
    classes = likelihood.processes if isinstance(likelihood, Softmax) else 1
    need = memory.expert_bytes(
        rows, shared, kernels=kernels, laplace=not likelihood.exact, classes=classes, coupled=coupled
    )
    memory.refuse_above(
        need + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"expert of {rows} rows about {shared} shared variables" + f" of {classes} classes" * (classes > 1),
        remedy="lower --rows-per-expert or --query, or give workers more memory"
        + "; --likelihood softmax needs less" * coupled,
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
