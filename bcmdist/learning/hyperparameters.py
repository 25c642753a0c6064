"""Hyper-parameters of a fit: given, or learned from blocks of rows and from rows left out.

Hyper-parameters that somebody gives by name, instead of learning them.

The scale of a kernel that was learned with another likelihood than the one it is for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.learning.blocks.blocks import Blocks
from bcmdist.learning.cross_validation import ValidationData
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.evidence.local_tasks import ClassEvidence, LocalEvidence
from bcmdist.learning.evidence.objectives import BLOCKWISE, LocalObjective
from bcmdist.learning.experts import EXPERTS
from bcmdist.learning.input_methods import INPUT_METHODS
from bcmdist.learning.method import first_mean_of
from bcmdist.learning.search import AUTO_KERNELS, EFFORTS, GAIN_NATS, PRIOR_SD, learn
from bcmdist.model.kernels import Kernel, kernel_parts, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named
from bcmdist.runtime import memory

# Factor on all lengthscales with which rescaling tries first (on variances: its square), and its evaluations.
RESCALE_STEP = np.log(2.0)
RESCALE_EVALUATIONS = 20

# Largest variance of softmax latents: odds of exp(14) at two standard deviations. Where classes do not overlap the
# evidence grows beyond, and one pass suffers: on validation rows of letter, accuracy .87 at a variance of 30, .89 at
# 100, .64 at 1000.
LARGEST_SOFTMAX_VARIANCE = 50.0


def rescale(value: Callable[[Kernel], float], kernel: Kernel) -> Kernel:
    """The kernel with all lengthscales times one factor and all variances times another that maximise `value`.

    For likelihoods whose evidence has no gradient here: the kernel was learned with another likelihood, whose
    latents have another scale. Nelder-Mead from the kernel as it is, with the weak prior of the search.
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


# Of what may be given: products of a few of them neither overflow nor underflow.
LEAST, MOST = 1e-100, 1e100


def with_hyperparameters(
    kernel: Kernel, likelihood: Likelihood, given: dict[str, float | list[float]], *, groups: tuple[int, ...] = ()
) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood with some parameters set by name, as `--set` gives them.

    Parameters
    ----------
    groups : (D,) the first of the inputs that each shares its lengthscale with; one for each of these is enough

    Raises
    ------
    InvalidOption
        A name is unknown, or a value is not positive or has the wrong length.
    """
    known = named_parameters(kernel, likelihood)
    lengthscales, columns = {f"kernel.{name}" for name in kernel.lengthscales}, sorted(set(groups))
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(f"--set: expected one of {', '.join(known)}, got {name!r}; use one of these names")
        values, shape = np.atleast_1d(np.asarray(value, dtype=float)), known[name].shape
        by_column = name in lengthscales and shape == (len(groups),) and len(columns) < len(groups)
        if by_column and values.shape == (len(columns),):
            values = values[np.searchsorted(columns, groups)]
        if not np.all((values >= LEAST) & (values <= MOST)) or len(values) not in (1, *shape):
            wanted = f"{shape[0]}{f' or {len(columns)}, one a column,' if by_column else ''}"
            raise InvalidOption(
                f"--set {name}: expected one positive number or {wanted} of them, got {value}; correct it, from "
                f"{LEAST:g} to {MOST:g}"
            )
        known[name] = np.broadcast_to(values, shape).copy()
    return with_named(kernel, likelihood, known)


# The mean that is decided on, and the one that may take the place of a constant one.
AUTO_MEAN, LINEAR = "auto", "linear"
AUTO_KERNEL = "auto"
# The softmax evidence costs about 30 times as much per row: fewer and smaller blocks, for two parameters.
RESCALE_BLOCK = 500
RESCALE_BLOCKS = 2


def find_hyperparameters(
    settings, blocks, near, reference, spread, likelihood, classes, runtime, log, *, groups, sloping, affordable
) -> tuple[str, Kernel, Likelihood, str, dict[str, Any]]:
    """Kernel name, kernel, likelihood and mean, learned or given, and what was found on the way.

    Parameters
    ----------
    blocks : `Blocks` over which the evidence is summed
    near : `CellBlocks` in which rows are left out; None where rows stay as they are stored
    reference : of the scaling
    spread : (D,) what the inputs as they were given were divided by
    log : path of the evaluations that are known already
    groups : (D,) the first of the inputs that each shares its lengthscale with; () where each has its own
    sloping : whether a linear mean may take the place of the constant one
    affordable : a function of a kernel, whether shared variables can stand for it

    Raises
    ------
    InvalidOption, MemoryLimit, NotPositiveDefinite
    """
    inputs = len(spread)
    if not settings.learn:
        return _given(settings, inputs, groups, likelihood)
    wanted, likelihood = likelihood, likelihood.learned_as()
    classes = classes or ((0.0, 1.0) if likelihood is not wanted else None)
    mean = first_mean(settings)
    task = BLOCKWISE.get(settings.objective, LocalEvidence)
    objective = LocalObjective(runtime, blocks(None), scaling=reference, mean=mean, classes=classes, task=task)
    bench = ValidationData(near, reference, runtime, classes, likelihood) if near else None
    _refuse_large_evidence(max(blocks.largest, bench.sizes.rows if bench else 0), inputs, settings, likelihood, runtime)
    remembered = CachedObjective(objective, log)
    ground = _Ground(objective, remembered, blocks, mean, sloping)
    try:
        learned = learn(
            ground.objective_for,
            requested_kernel(settings),
            likelihood,
            inputs=inputs,
            effort=EFFORTS[settings.effort],
            groups=groups,
            spread=spread,
            validation_for=ground.validation_on(bench) if bench else None,
            trend=ground.trend,
            affordable=affordable,
        )
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(f"{error}; the last failure: {(remembered.reasons or ['none'])[-1]}") from error
    found = {
        "kernels_tried": learned.tried,
        "at_bounds": learned.at_bounds,
        "evaluations": learned.evaluations,
        "settled": learned.settled,
        "decisions": [decision.to_json() for decision in learned.decisions],
    }
    kernel, mean = learned.kernel, LINEAR if learned.linear else mean
    if likelihood is not wanted and not (wanted.needs_calibration or wanted.apart):  # its evidence has no gradient
        kernel = rescale(_class_evidence(objective.parts, reference, mean, wanted, classes, runtime), kernel)
    return learned.kernel_name, kernel, learned.likelihood if likelihood is wanted else wanted, mean, found


def _given(settings, inputs, groups, likelihood):
    """As `find_hyperparameters`, where nothing is learned."""
    name = first_kernel(settings)
    made = with_hyperparameters(parse_kernel(name, inputs=inputs), likelihood, settings.set, groups=groups)
    found = {"kernels_tried": {}, "at_bounds": [], "evaluations": 0, "decisions": []}
    return name, *made, first_mean(settings), found


@dataclass(frozen=True)
class _Ground:
    """What learning stands on: an objective whose rows and mean change on the way."""

    objective: LocalObjective
    remembered: CachedObjective
    blocks: Blocks
    mean: str
    open_mean: bool
    """whether a linear mean may take the place of this one"""

    def objective_for(self, kernel):
        """The objective over rows that are near in the metric of a kernel."""
        if kernel is not None:
            self.objective.parts = self.blocks(kernel)
        return self._under(self.mean)

    @property
    def trend(self):
        """The objective over the rows of the moment under a linear mean, where that is open."""
        return self._under(LINEAR) if self.open_mean else None

    def validation_on(self, bench):
        """A function of a kernel: judges of rows that are near in its metric."""

        def validation_for(kernel):
            seats = bench.judges(kernel)
            return seats.under(self.mean, seats.under(LINEAR) if self.open_mean else None)

        return validation_for

    def _under(self, mean):
        def evidence(kernel, likelihood):
            self.objective.mean = mean
            return self.remembered(kernel, likelihood)

        return evidence


def _refuse_large_evidence(rows, inputs, settings, likelihood, runtime):
    kernels = kernel_parts(parse_kernel(first_kernel(settings), inputs=1))
    memory.refuse_above(
        memory.evidence_bytes(rows, inputs, kernels=kernels, laplace=not likelihood.normal),
        runtime.allowed_bytes,
        what="learning",
        remedy="give workers more memory, or lower --rows-per-expert or --effort",
    )


def _class_evidence(blocks, reference, mean, likelihood, classes, runtime):
    """A function of a kernel: its evidence with a likelihood of classes over some small blocks."""
    small = [block.head(RESCALE_BLOCK) for block in blocks[:RESCALE_BLOCKS]]

    def evidence(kernel):
        task = ClassEvidence(reference, kernel, mean, likelihood, classes)
        return runtime.sum(task, small, label="learn")

    return evidence


def first_mean(settings) -> str:
    """The mean, or the one that stands for `auto` until it is decided."""
    if settings.mean != AUTO_MEAN:
        return settings.mean
    return first_mean_of(EXPERTS[settings.expert])


def may_slope(settings, likelihood) -> bool:
    """Whether a linear mean may be decided on: for measurements that are learned from, by an expert that knows it."""
    open_to_it = settings.mean == AUTO_MEAN and EXPERTS[settings.expert].capabilities.mean
    return open_to_it and settings.learn and likelihood.learned_as().normal


def first_kernel(settings) -> str:
    """The kernel's expression, or the one that stands for `auto` before learning."""
    kernel = requested_kernel(settings)
    return AUTO_KERNELS[0] if kernel == AUTO_KERNEL else kernel


def requested_kernel(settings) -> str:
    """The kernel's expression, or `auto` where it is to be chosen, unless a method has its own default."""
    if settings.kernel != AUTO_KERNEL:
        return settings.kernel
    return INPUT_METHODS[settings.noisy_inputs].kernel or EXPERTS[settings.expert].defaults.kernel
