"""Determine the hyper-parameters of a fit: set by name, or learned from blocks of rows and left-out rows."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.schema import few
from bcmdist.errors import BcmdistWarning, InvalidOption, NotPositiveDefinite
from bcmdist.learning.blocks.blocks import Blocks
from bcmdist.learning.cross_validation import ValidationData
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.local_tasks import ClassEvidence, LocalEvidence
from bcmdist.learning.evidence.objectives import BLOCKWISE, LocalObjective
from bcmdist.learning.experts import method_of
from bcmdist.learning.method import first_mean_of
from bcmdist.learning.outputs import ONE_OUTPUT, OutputColumns, output_columns
from bcmdist.learning.search import AUTO_KERNELS, EFFORTS, PRIOR_SD, learn
from bcmdist.learning.settings import Settings
from bcmdist.learning.stopping import GAIN_NATS
from bcmdist.learning.structure import ColumnRoles
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import Kernel, kernel_parts, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named
from bcmdist.runtime import memory

# First step of rescaling: factor on all lengthscales (its square on variances), and the maximum of evaluations.
RESCALE_STEP = np.log(2.0)
RESCALE_EVALUATIONS = 20

# Largest variance of softmax latents: odds of exp(14) at two standard deviations. If classes do not overlap, the
# evidence increases beyond this, and a single pass becomes inaccurate.
LARGEST_SOFTMAX_VARIANCE = 50.0


def rescale(value: Callable[[Kernel], float], kernel: Kernel) -> Kernel:
    """Maximise `value` over one factor on all lengthscales and one on all variances; return the scaled kernel.

    For likelihoods whose evidence has no gradient here: the kernel was learned with another likelihood, whose
    latent function has another scale. Nelder-Mead from the kernel, with the weak prior of the search.
    """
    bounds = dict(kernel.bounds)
    for name in kernel.variances:
        low, high = bounds[name]
        bounds[name] = low, min(high, LARGEST_SOFTMAX_VARIANCE)

    def scaled(logs):
        factors = dict.fromkeys(kernel.lengthscales, np.exp(logs[0])) | dict.fromkeys(kernel.variances, np.exp(logs[1]))
        values = {n: (v * factors.get(n, 1.0)).clip(*bounds[n]) for n, v in kernel.parameters.items()}
        return kernel.with_parameters(values)

    def loss(logs):
        penalty = 0.5 * float(logs @ logs) / PRIOR_SD**2
        return penalty - value(scaled(logs))

    simplex = np.array([[0.0, 0.0], [RESCALE_STEP, 0.0], [0.0, 2.0 * RESCALE_STEP]])
    options = {"initial_simplex": simplex, "maxfev": RESCALE_EVALUATIONS, "fatol": GAIN_NATS, "xatol": 0.05}
    return scaled(minimize(loss, np.zeros(2), method="Nelder-Mead", options=options).x)


# Limits of values that may be set: products of a few of them neither overflow nor underflow.
LEAST, MOST = 1e-100, 1e100


def with_hyperparameters(
    kernel: Kernel, likelihood: Likelihood, named: dict[str, float | list[float]], *, groups: tuple[int, ...] = ()
) -> tuple[Kernel, Likelihood]:
    """Return kernel and likelihood with parameters set by name, as by `--set`.

    Parameters
    ----------
    groups : (D,) for each input the first input that shares its lengthscale; one value per group is enough

    Raises
    ------
    InvalidOption
        A name is unknown, or a value is not positive or has the wrong length.
    """
    parameters = named_parameters(kernel, likelihood)
    columns_of = kernel.lengthscale_columns(len(groups)) if groups else {}
    own = {f"kernel.{name}": [groups[column] for column in columns] for name, columns in columns_of.items()}
    for name, value in named.items():
        if name not in parameters:
            raise InvalidOption(f"--set: expected one of {', '.join(parameters)}, got {name!r}; use one of these names")
        values, shape = np.atleast_1d(np.asarray(value, dtype=float)), parameters[name].shape
        shared = own.get(name, [])
        columns = list(dict.fromkeys(shared))
        by_column = shape == (len(shared),) and len(columns) < len(shared)
        if by_column and values.shape == (len(columns),):
            values = values[[columns.index(one) for one in shared]]
        if not np.all((values >= LEAST) & (values <= MOST)) or len(values) not in (1, *shape):
            count = f"{shape[0]}{f' or {len(columns)}, one a column,' if by_column else ''}"
            raise InvalidOption(
                f"--set {name}: expected one positive number or {count} of them, got {value}; correct it, from "
                f"{LEAST:g} to {MOST:g}"
            )
        parameters[name] = np.broadcast_to(values, shape).copy()
    return with_named(kernel, likelihood, parameters)


# Value of `mean` that lets learning choose the mean, and the mean that may replace a constant one.
AUTO_MEAN, LINEAR = "auto", "linear"
AUTO_KERNEL = "auto"
# The softmax evidence costs about 30 times as much per row: fewer and smaller blocks suffice for two parameters.
RESCALE_BLOCK = 500
RESCALE_BLOCKS = 2


@dataclass(frozen=True)
class InputColumns:
    """What learning needs to know of the inputs."""

    scales: np.ndarray
    """(D,) divisors of the original inputs"""
    groups: tuple[int, ...] = ()
    """(D,) for each input the first input that shares its lengthscale; () if each has its own"""
    outputs: OutputColumns = ONE_OUTPUT
    """inputs that name a row's output"""
    roles: ColumnRoles | None = None
    """inputs with a role in sums of kernels; None if only kernels of all columns may be chosen"""


def find_hyperparameters(
    settings, blocks, near, reference, columns, likelihood, classes, runtime, log, *, sloping, **how
) -> tuple[str, Kernel, Likelihood, str, dict[str, Any]]:
    """Kernel name, kernel, likelihood, mean (learned, or of the settings), and findings by field name of `Facts`.

    Parameters
    ----------
    blocks : `Blocks` over which the evidence is summed
    near : `CellBlocks` from which rows are left out; None unless partitions are spatial
    reference : reference of the scaling
    columns : `InputColumns`
    log : path of the log of evaluations (`CachedObjective`)
    sloping : whether a linear mean may replace the constant one
    how : `representable`, `meter` and `limit` of `learn`

    Raises
    ------
    InvalidOption, MemoryLimit, NotPositiveDefinite
    """
    inputs = len(columns.scales)
    if not settings.learn:
        return fixed_hyperparameters(settings, inputs, columns.groups, likelihood, columns.outputs)
    target, likelihood = likelihood, likelihood.learned_as()
    classes = classes or ((0.0, 1.0) if likelihood is not target else None)
    mean = first_mean(settings, columns.outputs)
    objective = first_objective(settings, blocks(None), reference, classes, runtime, mean)
    validation = ValidationData(near, reference, runtime, classes, likelihood) if near else None
    most = max(blocks.largest, validation.sizes.rows if validation else 0)
    _refuse_large_evidence(most, inputs, settings, likelihood, runtime)
    linear = columns.outputs.mean(LINEAR)
    objectives = _Objectives(objective, CachedObjective(objective, log), blocks, mean, linear if sloping else None)
    try:
        learned = learn(
            objectives.objective_for,
            requested_kernel(settings),
            likelihood,
            inputs=inputs,
            effort=EFFORTS[settings.effort],
            groups=columns.groups,
            scales=columns.scales,
            outputs=columns.outputs,
            roles=columns.roles,
            validation_for=objectives.validation_on(validation) if validation else None,
            trend=objectives.trend,
            **how,
        )
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(
            f"{error}; the last failure: {(objectives.remembered.reasons or ['none'])[-1]}"
        ) from error
    kernel, mean = learned.kernel, linear if learned.linear else mean
    if likelihood is not target and not (
        target.needs_calibration or target.independent_processes
    ):  # evidence without gradient
        kernel = rescale(_class_evidence(objective.parts, reference, mean, target, classes, runtime), kernel)
    about = kernel, learned.likelihood if likelihood is target else target, mean
    return learned.kernel_name, *about, _findings(learned)


def _findings(learned) -> dict[str, Any]:
    """What learning found besides the hyper-parameters, by field name of `Facts`."""
    return {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
        "settled": learned.noise_factors,
        "decisions": [decision.to_json() for decision in learned.decisions],
        "unfinished": learned.unfinished,
    }


def first_objective(settings, parts, reference, classes, runtime, mean: str) -> LocalObjective:
    """Return the objective that learning maximises over some partitions, under a mean."""
    task = BLOCKWISE.get(settings.objective, LocalEvidence)
    return LocalObjective(runtime, parts, scaling=reference, mean=mean, classes=classes, task=task)


def fixed_hyperparameters(
    settings, inputs, groups, likelihood, outputs: OutputColumns = ONE_OUTPUT
) -> tuple[str, Kernel, Likelihood, str, dict[str, Any]]:
    """Return the hyper-parameters of the settings, not learned, in the form of `find_hyperparameters`."""
    name = first_kernel(settings, outputs)
    made = with_hyperparameters(parse_kernel(name, inputs=inputs), likelihood, settings.set, groups=groups)
    found = {"kernels_tried": {}, "at_bounds": [], "evaluations": 0, "decisions": []}
    return name, *made, first_mean(settings, outputs), found


@dataclass(frozen=True)
class _Objectives:
    """The objective of learning, with the rows and the mean of the current round."""

    objective: LocalObjective
    remembered: CachedObjective
    blocks: Blocks
    mean: str
    linear: str | None
    """linear mean that may replace this one"""

    def objective_for(self, kernel):
        """Return the objective over rows that are near in the metric of a kernel."""
        if kernel is not None:
            self.objective.parts = self.blocks(kernel)
        return self._under(self.mean)

    @property
    def trend(self):
        """The objective over the current rows under a linear mean; None if the mean is not to be chosen."""
        return self._under(self.linear) if self.linear else None

    def validation_on(self, data):
        """Return a function of a kernel: cross-validation on rows that are near in its metric."""

        def validation_for(kernel):
            folds = data.folds(kernel)
            return folds.under(self.mean, folds.under(self.linear) if self.linear else None)

        return validation_for

    def _under(self, mean):
        def evidence(kernel, likelihood):
            self.objective.mean = mean
            return self.remembered(kernel, likelihood)

        return evidence


def _refuse_large_evidence(rows, inputs, settings, likelihood, runtime):
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=inputs))
    memory.refuse_above(
        memory.evidence_bytes(rows, inputs, kernels=kernels, laplace=not likelihood.normal),
        runtime.allowed_bytes,
        what="learning",
        remedy="give workers more memory, or lower --rows-per-expert or --effort",
    )


def _class_evidence(blocks, reference, mean, likelihood, classes, runtime):
    """Return a function of a kernel: its evidence with a class likelihood over a few small blocks."""
    small = [block.head(RESCALE_BLOCK) for block in blocks[:RESCALE_BLOCKS]]

    def evidence(kernel):
        task = ClassEvidence(reference, kernel, mean, likelihood, classes)
        return runtime.sum(task, small, label="learn")

    return evidence


def first_mean(settings, outputs: OutputColumns = ONE_OUTPUT) -> str:
    """Return the prior mean; for `auto` the one used before the choice."""
    return outputs.mean(first_mean_of(method_of(settings)) if settings.mean == AUTO_MEAN else settings.mean)


def may_slope(settings, likelihood) -> bool:
    """Whether a linear mean may be chosen: for learning with Gaussian noise, by an expert with a prior mean."""
    open_to_it = settings.mean == AUTO_MEAN and method_of(settings).capabilities.mean
    return open_to_it and settings.learn and likelihood.learned_as().normal


def with_numbered_columns(settings: Settings, columns: KernelColumns, *, warn=False) -> Settings:
    """Settings whose kernel has numbers of columns in place of names; `warn` of columns that no term uses.

    Raises
    ------
    InvalidOption
        The kernel names a column that does not exist.
    """
    if settings.kernel == AUTO_KERNEL:
        return settings
    outputs = output_columns(settings, columns.schema, columns.inputs, "the data")
    numbered = outputs.kernel(columns.numbered(settings.kernel))
    outputs.refuse_others(numbered)
    if warn and (unused := columns.unused(numbered)):
        text = f"kernel: {few(unused)} used by no term of {columns.shown(numbered)}; drop the columns, or add terms"
        warnings.warn(BcmdistWarning(text), stacklevel=2)
    names = (f"kernel.{name}" for name in parse_kernel(numbered, inputs=columns.inputs).parameters)
    own = {columns.shown(name): name for name in names}
    return replace(settings, kernel=numbered, set={own.get(name, name): value for name, value in settings.set.items()})


def first_kernel(settings, outputs: OutputColumns = ONE_OUTPUT) -> str:
    """Return the kernel's expression; for `auto` the one used before learning."""
    kernel = requested_kernel(settings)
    return outputs.kernel(AUTO_KERNELS[0] if kernel == AUTO_KERNEL else kernel)


def requested_kernel(settings) -> str:
    """Return the kernel's expression, or `auto` if learning chooses it; a method may have its own default."""
    if settings.kernel != AUTO_KERNEL:
        return settings.kernel
    return method_of(settings).defaults.kernel
