"""Choose likelihood and class labels of a fit from its options and targets, and warn of unusual data."""

import warnings

import numpy as np

from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import CLASSES
from bcmdist.data.slices import SLICED
from bcmdist.errors import BcmdistWarning, InvalidOption, UnsupportedTarget
from bcmdist.learning.experts import method_of
from bcmdist.learning.rules import TWO_CLASSES
from bcmdist.learning.settings_checks import refuse_combinations
from bcmdist.learning.survey import MOST_CLASSES
from bcmdist.model.likelihoods import LIKELIHOODS, Likelihood, make_likelihood, tasks
from bcmdist.model.targets import reads_variances

# Targets with few distinct whole numbers, each frequent on average, may be labels or counts.
FEW_LABELS, LEAST_PER_LABEL = 20, 10


# Default likelihood for more than two classes: faster than softmax, exact in one pass, and better calibrated.
MANY_CLASSES = "onehot"


def task_for(settings, labels, schema) -> str:
    """Return the requested task, or the task inferred from class names and distinct targets."""
    requested = settings.task or (settings.likelihood and LIKELIHOODS[settings.likelihood].task)
    return requested or ("classification" if schema.classes or _binary(labels) else "regression")


def _binary(labels):
    return labels is not None and labels <= {0.0, 1.0}


def choose_likelihood(data, surveyed, settings, schema) -> tuple[Likelihood, tuple[float, ...] | None]:
    """Return the requested or default likelihood, and the class labels (None if the targets need no numbering).

    Raises
    ------
    InvalidOption
        Options do not suit the likelihood, or the task does not suit the targets.
    UnsupportedTarget
        The targets are no valid class labels.
    """
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
    many = task == "classification" and not two
    name = settings.likelihood or (method_of(settings).defaults.classes if many else tasks()[task][0])
    likely = make_likelihood(name, TWO_CLASSES)
    refuse_combinations(settings, likely)
    if not likely.per_class:
        return make_likelihood(name), tuple(sorted(labels)) if task == "classification" and not binary else None
    if labels is None:
        raise UnsupportedTarget(
            f"{data.url}: expected class labels in {data.y}, at most {MOST_CLASSES} different whole numbers, got "
            "other targets; recode them or choose another --task"
        )
    classes = tuple(sorted(labels | {0.0, 1.0} if binary else labels))
    return make_likelihood(name, len(classes)), classes


def refuse_target_variance(data, settings, likelihood) -> None:
    """Raise `InvalidOption` where known variances of targets cannot be combined with the likelihood or settings.

    They are variances of normal errors in the unit of the target: other likelihoods have no variance to which they
    could be added, and the error of a transformed target depends on the unknown value without it.
    """
    if TARGET_VARIANCE not in data.companions:
        return
    condition = f"with known variances of errors ({TARGET_VARIANCE})"
    alternative = f"or leave {TARGET_VARIANCE} out"
    if not reads_variances(likelihood):
        raise InvalidOption(
            f"{data.url}: expected the likelihood gaussian {condition}, which are added to the variance of normal "
            f"errors, got {likelihood.name}; give --task regression and --likelihood gaussian, {alternative}"
        )
    if not method_of(settings).capabilities.target_variance:
        raise InvalidOption(
            f"{data.url}: expected an expert with an error variance for each row {condition}, got {settings.expert}, "
            f"whose training has one noise variance for all rows; leave out --expert, {alternative}"
        )
    if settings.target_transform not in ("auto", "none"):
        raise InvalidOption(
            f"{data.url}: expected untransformed targets {condition}, which are in their squared unit, got "
            f"--target-transform {settings.target_transform}; give --target-transform none, or import the transformed "
            f"targets with the variances of their errors, {alternative}"
        )


def warn_of_roles(data, surveyed, settings, schema, likelihood) -> None:
    """Warn of companion arrays that are not used, and of targets whose task was inferred and may be wrong.

    Raises
    ------
    InvalidOption
        Censored lifetimes would be taken for ordinary targets.
    """
    unused = [name for name in data.companions if name not in ("weight", *likelihood.companions)]
    task = likelihood.task
    if "event" in unused and settings.task is None and settings.likelihood is None:
        raise InvalidOption(
            f"{data.url}: expected --task, got none for targets {data.y} beside an array event, which marks censored "
            f"lifetimes; give --task lifetimes, or --task {task} to ignore it"
        )
    odd = [f"{name} is not used: the {likelihood.name} likelihood does not read it" for name in unused]
    labels = surveyed.labels
    if settings.task is None and settings.likelihood is None and labels is not None and not schema.classes:
        few = TARGET_VARIANCE not in data.companions and len(labels) <= min(
            FEW_LABELS, surveyed.y.count // LEAST_PER_LABEL
        )
        shown = ", ".join(f"{label:g}" for label in sorted(labels)[:5]) + ", ..." * (len(labels) > 5)
        if few and task == "regression":
            odd.append(
                f"targets in {data.y} are {len(labels)} different whole numbers ({shown}), taken for measurements "
                "(--task regression); give --task classification if they are labels, counts if events were counted"
            )
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def warn_of_data(data, survey, settings, schema, likelihood) -> None:
    """Warn of constant inputs or targets, of lifetimes of 0, and of fewer distinct rows than query points."""
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
    if isinstance(settings.query, int) and settings.query_from is None and distinct < settings.query:
        odd.append(f"{settings.query} query points were asked for, the data hold {distinct} distinct rows")
    for text in odd:
        warnings.warn(BcmdistWarning(f"{data.url}: {text}"), stacklevel=2)


def warn_of_slices(data, settings, likelihood, share) -> None:
    """Warn if rows are sorted by target and no further passes correct the experts' linearisations.

    Without further passes each expert linearises its own slice of the targets. Margins of a support vector machine
    tolerate this: the calibration of probabilities corrects the rest.
    """
    if share < SLICED or likelihood.one_pass or settings.partition == "spatial":
        return
    if settings.passes == "1" or settings.linearise != "own":
        text = (
            f"{data.url}: rows are stored in the order of {data.y} ({share:.0%} of the variance of its ranks lies "
            "between partitions), so that experts take the few targets that they see for too certain; leave out "
            "--passes and --linearise, take --partition spatial, or store rows in random order"
        )
        warnings.warn(BcmdistWarning(text), stacklevel=2)
