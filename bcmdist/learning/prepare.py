"""Everything before the first message: survey, scaling, hyper-parameters, query set.

One pass over the data checks every row; nothing is written before it has passed.
"""

import warnings
from typing import cast

import numpy as np

from bcmdist.committee.facts import Cells
from bcmdist.data.cell_tree import grow
from bcmdist.data.dataset import Dataset, read_schema
from bcmdist.data.partition import partitions
from bcmdist.data.schema import CLASSES, with_two_classes
from bcmdist.data.slices import SLICED, share_between
from bcmdist.errors import BcmdistWarning, InvalidOption, UnsupportedTarget
from bcmdist.experts.limits import expert_fits, refuse_expert_of
from bcmdist.learning.blocks.blocks import LEARNING_BLOCK, CellBlocks, SampleBlocks
from bcmdist.learning.evidence.objectives import CommitteeObjective
from bcmdist.learning.experts import EXPERTS, Known
from bcmdist.learning.hyperparameters import find_hyperparameters, first_kernel, polished
from bcmdist.learning.query_selection import (
    LEAST_QUERY,
    MOST_QUERY,
    automatic_count,
    working_targets,
)
from bcmdist.learning.search import EFFORTS
from bcmdist.learning.settings import Settings
from bcmdist.learning.settings_checks import TWO_CLASSES
from bcmdist.learning.survey import MOST_CLASSES, Survey, SurveyResult
from bcmdist.model.kernels import kernel_parts, metric, parse_kernel
from bcmdist.model.likelihoods import LIKELIHOODS, make_likelihood, tasks
from bcmdist.model.mean import Mean
from bcmdist.model.model import Model
from bcmdist.model.scaling import scaling_from, scaling_to_array
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.targets import class_numbers
from bcmdist.prediction.local.halos import sizes_for
from bcmdist.runtime import memory
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference, ModelStore

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
EVALUATIONS = "evaluations.jsonl"
# Targets of so few different whole numbers, each so often on average, may be labels or counts.
FEW_LABELS, LEAST_PER_LABEL = 20, 10
# What stands for more than two classes by default: ten times as fast as softmax, exact in one pass, and on validation
# rows of letter, glass, wine, new_thyroid and svmguide2 better calibrated, mostly with a lower log loss too.
MANY_CLASSES = "onehot"


def survey(data: Dataset, settings: Settings, runtime: Runtime) -> SurveyResult:
    """One pass over the data that checks every row; nothing is written."""
    parts = partitions(data, settings.rows_per_expert)
    task = settings.task
    likelihood = settings.likelihood
    if likelihood is None and task is not None:  # for classes: any labels
        likelihood = MANY_CLASSES if task == "classification" else tasks(task)[task][0]
    affordable = _affordable_rows(data)
    sample = min(TREE_SAMPLE, affordable) if settings.partition == "spatial" else SAMPLE_LEAST
    sample = max(sample, _learning_rows(settings, data), SAMPLE_PER_QUERY * _most_query(settings, data))
    look = Survey(settings.seed, sample, likelihood)
    shared = min(_least_query(settings, data), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=data.inputs))
    least = make_likelihood(likelihood or "gaussian", TWO_CLASSES)  # so far the number of classes is not known
    refuse_expert_of(parts, shared, kernels, runtime, least, residual=EXPERTS[settings.expert].residual)
    return runtime.sum(look, parts, label="survey")


def prepare_model(
    data: Dataset,
    surveyed: SurveyResult,
    settings: Settings,
    runtime: Runtime,
    store: ModelStore,
    stages: StageTimer,
    scratch: str,
    rows_url: str,
) -> tuple[Model, dict]:
    """Settle a model on surveyed data; also what learning found, JSON-ready.

    Parameters
    ----------
    scratch : directory where learning keeps what it needs to resume
    rows_url : path or URL that all workers read, where it keeps the rows it looks at
    """
    schema = with_two_classes(read_schema(data.url, x=data.x, y=data.y))
    likelihood, classes = _choose_likelihood(data, surveyed, settings, schema)
    _warn(data, surveyed, settings, schema, likelihood)
    _warn_of_roles(data, surveyed, settings, schema, likelihood)
    scaling = scaling_from(surveyed.x, surveyed.y, surveyed.exposure, likelihood.units)
    parts = partitions(data, settings.rows_per_expert)
    sliced = share_between(surveyed.sample.obs.y, surveyed.sample.row, np.array([part.start for part in parts]))
    _warn_of_slices(data, settings, likelihood, sliced)
    shared = min(_least_query(settings, data), data.rows) + Mean(settings.mean).weights(data.inputs)
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=data.inputs))
    refuse_expert_of(parts, shared, kernels, runtime, likelihood, residual=EXPERTS[settings.expert].residual)
    sample, log = scaling.inputs(surveyed.sample.X), f"{scratch}/{EVALUATIONS}"
    with stages("learn"):
        array = store.put_arrays({"scaling": scaling_to_array(scaling)})["scaling"]
        reference = BlobReference(store.storage.url, array)
        near = _near_blocks(data, parts, sample, settings, reference, runtime, store, scratch)
        blocks = near or _sample_blocks(data, surveyed.sample, settings, rows_url)
        kernel_name, kernel, likelihood, found = find_hyperparameters(
            settings, blocks, near, reference, surveyed.x.scale, likelihood, classes, runtime, log
        )
    found["between_partitions"] = sliced
    with stages("query"):
        obs = scaling.observations(class_numbers(surveyed.sample.obs, classes), likelihood.units)
        made, count = _choose_shared(data, parts, settings, sample, obs, kernel, likelihood, runtime)
        found |= count
    if settings.objective == "committee":
        with stages("polish"):
            query = cast(Query, made)  # of bcm: settings refuse others
            about = {"points": query.points, "jitter": query.jitter_share, "store": store, "classes": classes}
            objective = CommitteeObjective(runtime, parts, scaling=reference, mean=settings.mean, **about)
            made, likelihood = polished(objective, query, kernel_name, likelihood, settings.query_method, found, log)
    cells = None
    if settings.partition == "spatial":
        with stages("cells"):
            cells, found["cells"] = _grow_cells(sample, kernel, data.rows, settings)
    found["companions"] = data.companions
    return Model(scaling, made, likelihood, kernel_name, settings.x, settings.y, classes, cells, schema), found


def _near_blocks(data, parts, sample, settings, reference, runtime, store, scratch) -> CellBlocks | None:
    """Neighbourhoods from which spatial partitions learn, each on its own; None where they do not."""
    if settings.partition != "spatial" or settings.objective != "local":
        return None
    effort = EFFORTS[settings.effort]
    return CellBlocks(
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


def _sample_blocks(data, sample, settings, rows_url) -> SampleBlocks | None:
    """Random rows from which partitions as they are stored learn; None where nothing is learned."""
    if not settings.learn:
        return None
    rows = np.arange(min(_learning_rows(settings, data), len(sample.X)))  # of a sample in random order
    size = len(rows) if settings.objective == "subset" else min(LEARNING_BLOCK, settings.rows_per_expert)
    return SampleBlocks(sample.X[rows], sample.obs[rows], data.companions, rows_url, size=size)


def _choose_shared(data, parts, settings, sample, obs, kernel, likelihood, runtime) -> tuple[Shared, dict]:
    """The shared variables of the expert that was asked for, and how many functions these were to be, JSON-ready.

    Parameters
    ----------
    sample, obs : rows (n, D) in random order and what was observed there, in the units of the model
    """
    expert, mean, found = EXPERTS[settings.expert], Mean(settings.mean), {}
    noise, count = likelihood.noise(obs), _query(settings, data)
    if count == "auto":
        fits = expert_fits(parts, mean.weights(data.inputs), kernel, runtime, likelihood, residual=expert.residual)
        count, found["degrees_estimated"] = automatic_count(sample, noise, data.rows, kernel, fits)
    known = Known(
        sample=sample,
        targets=working_targets(likelihood, obs, mean, sample),
        noise=noise,
        rows=data.rows,
        kernel=kernel,
        mean=mean,
        count=count,
        method=settings.query_method.replace("optimised", "kmeans"),
        seed=settings.seed,
        residual=expert.residual,
    )
    return expert.shared(known), found | {"query_asked": count}


def _affordable_rows(data):
    """Rows that may travel in a sample."""
    return SAMPLE_BYTES // (memory.FLOAT * data.inputs)


def _learning_rows(settings, data):
    """Rows of the sample whose evidence is maximised; none where these are neighbourhoods, or nothing is learned."""
    rows = EFFORTS[settings.effort].rows
    if settings.objective == "subset":
        return rows
    sampled = settings.learn and settings.partition == "chunks"
    return min(rows, max(SAMPLE_LEAST, _affordable_rows(data))) if sampled else 0


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
    return tree, Cells(sizes.core, sizes.around)


def task_for(settings, labels, schema):
    """The task that was asked for, or that fits the distinct whole numbers among the targets, or names of classes."""
    given = settings.task or (settings.likelihood and LIKELIHOODS[settings.likelihood].task)
    return given or ("classification" if schema.classes or _binary(labels) else "regression")


def _binary(labels):
    return labels is not None and labels <= {0.0, 1.0}


def _choose_likelihood(data, surveyed, settings, schema):
    """The likelihood that was asked for or fits the targets, and the class labels where it numbers classes."""
    labels = surveyed.labels
    binary, task = _binary(labels), task_for(settings, labels, schema)
    odd = sorted((labels or set()) - set(range(len(schema.classes)))) if schema.classes else []
    if odd:
        raise UnsupportedTarget(
            f"{data.url}: expected the numbers 0 to {len(schema.classes) - 1} of its classes in {data.y}, got "
            f"{odd[0]:g}; correct it, or the names in its attribute {CLASSES!r}"
        )
    if schema.classes and task != "classification":
        raise InvalidOption(
            f"{data.url}: expected --task classification for targets that are names of classes in {data.y} "
            f"({', '.join(schema.classes[:5])}), got {task}; give it, or numbers"
        )
    two = binary or (labels is not None and len(labels) == 2)
    name = settings.likelihood or (tasks(task)[task][0] if task != "classification" or two else MANY_CLASSES)
    single, per_class = make_likelihood(name, TWO_CLASSES).single, LIKELIHOODS[name].per_class
    if not single and (settings.approximation == "ep" or settings.linearise != "own"):
        raise InvalidOption(
            f"{data.url}: expected --approximation laplace and --linearise own with the likelihood {name}, got "
            f"{settings.approximation} and {settings.linearise}; leave them out"
        )
    if not single and settings.objective == "committee":
        raise InvalidOption(
            f"{data.url}: expected --objective local or subset with the likelihood {name}, got committee; give one"
        )
    if not per_class:
        return make_likelihood(name), tuple(sorted(labels)) if task == "classification" and not binary else None
    if labels is None:
        raise UnsupportedTarget(
            f"{data.url}: classification expects whole numbers as class labels in {data.y}, at most {MOST_CLASSES} "
            "different ones, got other targets; recode them or choose another --task"
        )
    classes = tuple(sorted(labels | {0.0, 1.0} if binary else labels))
    return make_likelihood(name, len(classes)), classes


def _warn_of_roles(data, surveyed, settings, schema, likelihood):
    """Say what was taken for what, where that was not said.

    Raises
    ------
    InvalidOption
        Lifetimes that are censored would be taken for ordinary targets.
    """
    unused = [name for name in data.companions if name not in ("weight", *likelihood.companions)]
    task = likelihood.task
    if "event" in unused and settings.task is None and settings.likelihood is None:
        raise InvalidOption(
            f"{data.url}: expected --task, got none for targets {data.y} beside an array event, which tells censored "
            f"lifetimes; give --task lifetimes, or --task {task} to do without it"
        )
    odd = [f"{name} is not used: the {likelihood.name} likelihood does not read it" for name in unused]
    labels = surveyed.labels
    if settings.task is None and settings.likelihood is None and labels is not None and not schema.classes:
        few = len(labels) <= min(FEW_LABELS, surveyed.y.count // LEAST_PER_LABEL)
        shown = ", ".join(f"{label:g}" for label in sorted(labels)[:5]) + ", ..." * (len(labels) > 5)
        if few and task == "regression":
            odd.append(
                f"targets in {data.y} are {len(labels)} different whole numbers ({shown}), taken for measurements "
                "(--task regression); say --task classification if they are labels, counts if events were counted"
            )
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def _warn(data, survey, settings, schema, likelihood):
    """Say what is odd about the data but can be worked with."""
    distinct = len(np.unique(survey.sample.X, axis=0))
    constant = np.flatnonzero(survey.x.constant)
    odd = [f"{schema.column(k)} of {data.x} is constant and carries no information" for k in constant]
    if survey.y.constant[0]:
        odd.append(f"all targets in {data.y} equal {survey.y.low[0]:g}")
    if survey.zeros.count:
        odd.append(
            f"{survey.zeros.count} {likelihood.task} in {data.y} are 0, the first at row {survey.zeros.first}: they "
            f"count as {likelihood.zero_counts_as:g} of the mean one, as below the unit of a clock; correct them where "
            "they mean something else"
        )
    if isinstance(settings.query, int) and distinct < settings.query:
        odd.append(f"{settings.query} query points were asked for, the data hold {distinct} distinct rows")
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def _warn_of_slices(data, settings, likelihood, share):
    """Say where experts will linearise slices of the targets on their own, and no further passes mend it.

    The margins of a support vector machine bear it: calibration settles what is left.
    """
    if share < SLICED or likelihood.exact or likelihood.needs_calibration or settings.partition == "spatial":
        return
    if settings.passes == "1" or settings.linearise != "own":
        text = (
            f"{data.url}: rows are stored in the order of {data.y} ({share:.0%} of the variance of its ranks lies "
            "between partitions), so that experts take the few targets that they see for too certain; leave out "
            "--passes and --linearise, take --partition spatial, or store rows in random order"
        )
        warnings.warn(BcmdistWarning(text), stacklevel=2)


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
