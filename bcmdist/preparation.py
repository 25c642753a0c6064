"""Everything before the first message: survey, scaling, hyper-parameters, query set.

One pass over the data checks every row; nothing is written before it has passed.
"""

import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np

from bcmdist import memory
from bcmdist.arrays import Data
from bcmdist.blocks import Blocks, CellBlocks, ChunkBlocks, SubsetBlocks
from bcmdist.cells import grow
from bcmdist.errors import BcmdistWarning, InvalidOption, MemoryLimit, NotPositiveDefinite, UnsupportedTarget
from bcmdist.kernels import expression, kernel_parts, metric, parse_kernel
from bcmdist.learning import AUTO_KERNELS, EFFORTS, learn, polish, rescale, with_given
from bcmdist.likelihoods import CLASS_LIKELIHOODS, SVM, TASKS, Gaussian, OneHot, Softmax, make_likelihood
from bcmdist.mean import Mean
from bcmdist.model import Model, to_lists
from bcmdist.objectives import CommitteeObjective, LocalObjective, improved_points
from bcmdist.partition import partitions
from bcmdist.prediction import BLOCK_ROWS
from bcmdist.query import prepare
from bcmdist.remembered import Remembered
from bcmdist.rows import RUN_ROWS
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
from bcmdist.surroundings import sizes_for
from bcmdist.tasks.learning import ClassEvidence, LeftOut
from bcmdist.tasks.survey import MOST_CLASSES, Survey, SurveyResult
from bcmdist.tasks.targets import class_numbers


@dataclass(frozen=True)
class Neighbourhoods:
    """Where rows are left out."""

    count: int
    rows: int
    """of each"""
    central: int
    """rows in the middle of each, which are left out one by one"""


# Rows sampled per query point for k-means, and the least: enough for centres to be stable.
SAMPLE_PER_QUERY = 10
SAMPLE_LEAST = 1000
# Rows sampled for the tree of cells at most, and the least of them that a cell is cut from.
TREE_SAMPLE = 200_000
SAMPLE_BYTES = 2**26  # they travel, some of them at a time
LEAST_SAMPLED = 8
# Query points by default; twice as many where rows are many and inputs few: there they fill gaps between rows (on rows
# of a validation split of heaton that mirrors its gaps: RMSE .767 for .793).
QUERY = 500
FEW_INPUTS, MANY_ROWS = 3, 20_000
# Neighbourhoods in which rows are left out to settle what the evidence leaves open.
# They are many and far apart, so that rare neighbours that disagree are among them. For labels they are as large as
# what local experts see instead: how far a label is believed depends on how many others there are (of the noises tried
# on mnist, labels left out of 250 rows prefer .03, of 1000 rows .01; experts of 958 rows err on 2.5 % of validation
# labels at .05, on 2.3 % at .01).
JUDGED = Neighbourhoods(count=100, rows=250, central=40)
JUDGED_LABELS = Neighbourhoods(count=25, rows=1000, central=160)
EVALUATIONS = "evaluations.jsonl"
# Iterations that climb the evidence of the whole committee, and those that move query points: each of their
# evaluations passes over all rows twice.
POLISH_STEPS = 10
MOVING_STEPS = 5
# What stands for more than two classes by default: ten times as fast as softmax, exact in one pass, and on validation
# rows of letter, glass, wine, new_thyroid and svmguide2 better calibrated, mostly with a lower log loss too.
MANY_CLASSES = "onehot"

# Decoded chunks from which on they are worth a word where memory lacks.
LARGE_CHUNK_BYTES = 2**26

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
    affordable = SAMPLE_BYTES // (memory.FLOAT * data.inputs)
    sample = min(TREE_SAMPLE, affordable) if settings.partition == "spatial" else SAMPLE_LEAST
    subset = EFFORTS[settings.effort].rows if settings.objective == "subset" else 0
    look = Survey(settings.seed, max(sample, subset, SAMPLE_PER_QUERY * _most_query(settings, data)), likelihood)
    shared = min(_least_query(settings, data), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=data.inputs))
    least = make_likelihood(likelihood or "gaussian", 2)  # so far the number of classes is not known
    _refuse_large_expert(parts, shared, kernels, runtime, least)
    return runtime.sum(look, parts, label="survey")


def prepare_model(
    data: Data,
    surveyed: SurveyResult,
    settings: Settings,
    runtime: Runtime,
    store: ModelStore,
    stages: Stages,
    scratch: str,
) -> tuple[Model, dict]:
    """Settle a model on surveyed data; also what learning found, JSON-ready.

    Parameters
    ----------
    scratch : directory that all workers share, where learning keeps what it needs to resume
    """
    _warn(data, surveyed, settings)
    likelihood, classes = _choose_likelihood(data, surveyed, settings)
    scaling = scaling_from(surveyed.x, surveyed.y, surveyed.exposure, likelihood.scaling)
    parts = partitions(data, settings.rows_per_expert)
    shared = min(_least_query(settings, data), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=data.inputs))
    _refuse_large_expert(parts, shared, kernels, runtime, likelihood)
    sample, mean, effort = scaling.inputs(surveyed.sample.X), Mean(settings.mean), EFFORTS[settings.effort]
    with stages("learn"):
        array = store.put_arrays({"scaling": scaling_to_array(scaling)})["scaling"]
        reference = BlobReference(store.storage.url, array)
        blocks: Blocks = ChunkBlocks(parts, effort.rows, settings.seed, scratch)
        near = None
        if settings.objective == "subset":
            X, obs = surveyed.sample.X[: effort.rows], surveyed.sample.obs[np.arange(min(effort.rows, len(sample)))]
            blocks = SubsetBlocks(X, obs, data.companions, scratch)
        elif settings.partition == "spatial":
            blocks = near = CellBlocks(
                data,
                parts,
                sample,
                reference=reference,
                size=effort.block,
                per_density=effort.per_density,
                runtime=runtime,
                store=store,
                url=scratch,
                seed=settings.seed,
            )
        kernel_name, kernel, likelihood, found = _hyperparameters(
            settings,
            blocks,
            near,
            reference,
            surveyed.x.scale,
            likelihood,
            classes,
            runtime,
            f"{scratch}/{EVALUATIONS}",
        )
    with stages("query"):
        obs = scaling.observations(class_numbers(surveyed.sample.obs, classes), likelihood.scaling)
        noise, count = working_noise(likelihood, obs), _query(settings, data)
        if count == "auto":
            fits = _expert_fits(parts, mean.weights(data.inputs), kernel, runtime, likelihood)
            count, found["degrees_estimated"] = automatic_count(sample, noise, data.rows, kernel, fits)
        found["query_asked"] = count
        targets = working_targets(likelihood, obs, noise, mean, sample)
        method, seed = settings.query_method.replace("optimised", "kmeans"), settings.seed
        points = select_points(sample, count, kernel=kernel, method=method, targets=targets, noise=noise, seed=seed)
        query = prepare(points, kernel=kernel, mean=mean)
    if settings.objective == "committee":
        with stages("polish"):
            objective = CommitteeObjective(
                runtime,
                parts,
                scaling=reference,
                mean=settings.mean,
                points=points,
                jitter=query.jitter_share,
                store=store,
                classes=classes,
            )
            log = f"{scratch}/{EVALUATIONS}"
            query, likelihood = _polished(objective, query, kernel_name, likelihood, settings.query_method, found, log)
    cells = None
    if settings.partition == "spatial":
        with stages("cells"):
            cells, found["cells"] = _grow_cells(sample, kernel, data.rows, settings)
    return Model(scaling, query, likelihood, kernel_name, settings.x, settings.y, classes, cells), found


def _polished(objective, query, kernel_name, likelihood, query_method, found, log):
    """Query set and likelihood at which the evidence of the whole committee is higher; adds to what was found."""
    if query_method == "optimised":
        objective.points = improved_points(objective, query.kernel, likelihood, query.points, MOVING_STEPS)
    known, inputs = Remembered(objective, log), query.points.shape[1]
    best = polish(known, kernel_name, query.kernel, likelihood, inputs=inputs, steps=POLISH_STEPS)
    found["evaluations"] += best.evaluations
    found["at_bounds"] = best.at_bounds
    jitters = (objective.jitter,)  # of the objective: another one would be another committee
    return prepare(objective.points, kernel=best.kernel, mean=query.mean, jitters=jitters), best.likelihood


def _grow_cells(sample, kernel, rows, settings):
    """The tree of cells for all rows from a sample of them, and its sizes."""
    sizes = sizes_for(rows, sample.shape[1], settings.effort)
    share = min(1.0, len(sample) / rows)
    tree = grow(
        sample,
        metric(kernel, sample.shape[1]),
        cell_rows=max(LEAST_SAMPLED, share * sizes.core),
        partition_rows=max(LEAST_SAMPLED, share * settings.rows_per_expert),
        seed=settings.seed,
    )
    return tree, asdict(sizes)


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
    if name in (*CLASS_LIKELIHOODS, "svm") and settings.objective == "committee":
        raise InvalidOption(
            f"{data.url}: expected --objective local or subset with the likelihood {name}, got committee; give one"
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
    if isinstance(settings.query, int) and distinct < settings.query:
        odd.append(f"{settings.query} query points were asked for, the data hold {distinct} distinct rows")
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def _hyperparameters(settings, blocks, near, reference, spread, likelihood, classes, runtime, log):
    """Kernel name, kernel and likelihood, learned or given, and what was found on the way."""
    inputs = len(spread)
    if not settings.learn:
        name = _kernel_name(settings)
        kernel, likelihood = with_given(parse_kernel(name, inputs=inputs), likelihood, settings.set)
        return name, kernel, likelihood, {"kernels_tried": {}, "at_bounds": [], "evaluations": 0}
    wanted, likelihood = likelihood, _learned_as(likelihood)
    classes = classes or ((0.0, 1.0) if likelihood is not wanted else None)
    about = {"scaling": reference, "mean": settings.mean, "classes": classes}
    objective = LocalObjective(runtime, blocks(None), **about)
    kernels = kernel_parts(parse_kernel(_kernel_name(settings), inputs=1))
    memory.refuse_above(
        memory.evidence_bytes(
            max(b.rows for b in objective.parts), inputs, kernels=kernels, laplace=not isinstance(likelihood, Gaussian)
        ),
        runtime.allowed_bytes,
        what="learning",
        remedy="give workers more memory, or lower --rows-per-expert or --effort",
    )
    remembered = Remembered(objective, log)

    def objective_for(kernel):
        if kernel is not None:
            objective.parts = blocks(kernel)
        return remembered

    where = JUDGED_LABELS if isinstance(likelihood, OneHot) else JUDGED

    def judge_for(kernel):
        neighbourhoods = near.around(kernel, np.ones(where.count), where.rows)

        def judge(kernel, likelihood):
            names = expression(kernel), to_lists(kernel), settings.mean, likelihood.name, to_lists(likelihood)
            task = LeftOut(reference, *names, classes, where.central)
            return float(np.max(runtime.sum(task, neighbourhoods, label="judge")))

        return judge

    try:
        learned = learn(
            objective_for,
            settings.kernel,
            likelihood,
            inputs=inputs,
            effort=EFFORTS[settings.effort],
            spread=spread,
            judge_for=judge_for if near else None,
        )
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(f"{error}; the last failure: {(remembered.reasons or ['none'])[-1]}") from error
    found = {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
        "settled": learned.settled,
    }
    if not isinstance(wanted, Softmax):
        return learned.kernel_name, learned.kernel, learned.likelihood if likelihood is wanted else wanted, found
    small = [block.head(RESCALE_BLOCK) for block in objective.parts[:RESCALE_BLOCKS]]

    def softmax_evidence(kernel):
        task = ClassEvidence(reference, expression(kernel), to_lists(kernel), settings.mean, classes)
        return runtime.sum(task, small, label="learn")

    return learned.kernel_name, rescale(softmax_evidence, learned.kernel), wanted, found


def _learned_as(likelihood):
    """The likelihood whose evidence stands for one that has none, or a costly one, while learning."""
    if isinstance(likelihood, Softmax | SVM):
        return OneHot(max(2, likelihood.processes), noise_variance=np.full(1, 0.1))
    return likelihood


def _kernel_name(settings):
    """The kernel's expression, or the one that stands for `auto` before learning."""
    return AUTO_KERNELS[0] if settings.kernel == "auto" else settings.kernel


def _query(settings, data):
    """How many query points are asked for, or "auto"."""
    if settings.query is not None:
        return settings.query
    few = settings.partition == "spatial" and data.inputs <= FEW_INPUTS and data.rows >= MANY_ROWS
    return 2 * QUERY if few else QUERY


def _least_query(settings, data):
    """Query points that a fit has at least, where the data hold as many rows."""
    count = _query(settings, data)
    return LEAST_QUERY if count == "auto" else count


def _most_query(settings, data):
    count = _query(settings, data)
    return MOST_QUERY if count == "auto" else count


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
        + "; --likelihood softmax needs less" * coupled
        + _rechunk(data),
    )


def refuse_large_prediction(data, query, runtime):
    """Raise `MemoryLimit` where predicting a block of rows would not fit a worker thread."""
    memory.refuse_above(
        memory.prediction_bytes(BLOCK_ROWS, query.shared, kernels=kernel_parts(query.kernel)) + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"prediction with {query.shared} shared variables",
        remedy="lower --query when fitting, or give workers more memory" + _rechunk(data),
    )


def refuse_large_local(gbcm, data, runtime):
    """Raise `MemoryLimit` where the local experts of a partition would not fit a worker thread."""
    query, around, likelihood = gbcm.model.query, gbcm.facts["cells"]["around"], gbcm.model.likelihood
    need = memory.local_bytes(
        around,
        gbcm.facts["rows_per_expert"],
        query.shared,
        kernels=kernel_parts(query.kernel),
        classes=likelihood.processes if isinstance(likelihood, Softmax) else 1,
    )
    memory.refuse_above(
        need + _reading_bytes(data),
        runtime.allowed_bytes,
        what=f"local experts of {around} rows and {query.shared} shared variables",
        remedy="predict with --method committee, fit with a lower --effort or --partition chunks, or give workers more "
        "memory" + _rechunk(data),
    )


def _reading_bytes(data):
    """A whole chunk is decoded even where a part of it is wanted; and what is kept of it."""
    return 2 * max(data.chunk_bytes, memory.FLOAT * data.chunk_rows * data.inputs) + memory.FLOAT * 2 * (
        RUN_ROWS * data.inputs
    )


def _rechunk(data):
    """What to do where chunks take much of the memory, as text."""
    if data.chunk_bytes < LARGE_CHUNK_BYTES:
        return ""
    return f"; write {data.url} in smaller chunks: one of {data.chunk_bytes / 1e9:.3g} GB is decoded whole"
