"""Input-dependent scale of errors: a second Gaussian process regression, of log squared residuals.

With z the standardised leave-one-out residual of a row, log z^2 - E log chi^2_1 is an unbiased observation of the log
of the factor by which the predictive variance is wrong. The variance of this observation is known, pi^2 / 2 (of the log
of a chi^2_1), and stays fixed; when learned, it overfits. The log factor is a Gaussian process with a smooth kernel on
the *place* of a row, (D + 1,): its scaled inputs and the log of the predictive variance there. Rows are independent
given the values at inducing points, so their messages are sums over rows, which add, fade and can be withdrawn. Beyond
the range of the residuals, where nothing is known of the factor, it keeps its value at the edge of that range.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.expert import expert_message
from bcmdist.model.kernels import Kernel, parse_kernel
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import Query, prepare
from bcmdist.prediction.leave_one_out import left_out_of_committee

# Mean and variance of log chi^2_1; the mean is -log 2 - Euler's constant.
LOG_MEAN, LOG_VARIANCE = -1.2703628454614782, math.pi**2 / 2.0
# Smaller |z| are raised to this: repeated rows may have a residual of 0, which has no log.
SMALLEST = 0.01
# Most and least inducing points of the process, and the limit on their coordinates in all, which every commit stores.
POINTS, LEAST_POINTS, NUMBERS = 100, 10, 2**13
# Rows per block and number of blocks for learning the hyper-parameters.
BLOCK, BLOCKS = 400, 4
STEPS = 12
# Rows per message: messages are summed, so memory does not grow with the number of rows.
AT_A_TIME = 2048
# Jitter at the inducing points, as a share of the variance: without it, rounding errors of a smooth kernel show in the
# ninth digit.
JITTER = 1e-5
# Decimals of the logs of learned hyper-parameters: nearly equal residuals, summed in another order, must give the same
# process.
DECIMALS = 2
# Start and bounds of learning: the variance of the log factor; the lengthscale of the inputs, as a multiple of their
# units; that of the log predictive variance, as a multiple of its standard deviation, which is at least
# `LEAST_DEVIATION`.
START, BOUNDS = (0.5, 1.0, 2.0), ((1e-3, 1e1), (0.1, 10.0), (0.3, 30.0))
LEAST_DEVIATION = 0.05
# Largest deviation of a log factor from the mean factor's log: a factor of 55 in variance, 7 in standard deviation.
LARGEST_LOG = 4.0
# Variances are clipped to this range: some distributions have no finite variance.
FINITE = (1e-100, 1e100)

_NOISE = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([LOG_VARIANCE])})


@dataclass(frozen=True)
class Process:
    """The prior of the log factor. It is chosen once, so that the messages of later rows can be added."""

    points: np.ndarray
    """inducing points, (Q, D + 1)"""
    variance: float
    """of the squared exponential kernel"""
    lengthscale: np.ndarray
    """(D + 1,)"""
    low: np.ndarray | float = -math.inf
    high: np.ndarray | float = math.inf
    """smallest and largest coordinates of the residuals, (D + 1,) each; infinite in older models"""

    @property
    def shared(self) -> Query:
        """Its shared variables: the values at the inducing points, without a residual."""
        kernel = _kernel(self.variance, self.lengthscale)
        return prepare(self.points, kernel=kernel, mean=Mean("constant"), residual="none", jitters=(JITTER,))

    def to_json(self) -> dict:
        """The fields, JSON-ready."""
        arrays = {name: getattr(self, name) for name in ("points", "lengthscale", "low", "high")}
        finite = {name: value.tolist() for name, value in arrays.items() if isinstance(value, np.ndarray)}
        return {"variance": float(self.variance)} | finite

    @classmethod
    def from_json(cls, fact) -> "Process":
        """From the stored process (`bcmdist.committee.measurements.ScaleProcess`)."""
        ends = () if fact.low is None else (np.array(fact.low), np.array(fact.high))
        return cls(np.array(fact.points), fact.variance, np.array(fact.lengthscale), *ends)


@dataclass(frozen=True)
class VaryingScale:
    """The posterior mean of the log factor, normalised so that the mean factor over the residuals is 1."""

    shared: Query
    mean: np.ndarray
    """posterior mean of the shared variables, (S,)"""
    level: float
    """log of the mean factor before normalisation"""
    low: np.ndarray | float = -math.inf
    high: np.ndarray | float = math.inf
    """ends of the coordinates, as of `Process`"""

    def factor(self, places) -> np.ndarray:
        """Factor (n,) on the predictive variance of observations at places (n, D + 1)."""
        places = places.clip(self.low, self.high)
        blocks = [places[start : start + AT_A_TIME] for start in range(0, max(len(places), 1), AT_A_TIME)]
        return _bounded(np.concatenate([self.shared.design(some) @ self.mean for some in blocks]) - self.level)


def places_of(X, variance) -> np.ndarray:
    """Places (n, D + 1) of scaled inputs X (n, D) with predictive variances of observations (n,)."""
    return np.column_stack([X, np.log(np.clip(variance, *FINITE))])


def log_squares(z) -> np.ndarray:
    """Observations (n,) of the log factor from standardised residuals z (n,)."""
    return 2.0 * np.log(np.maximum(np.abs(z), SMALLEST)) - LOG_MEAN


def fit_scale(process: Process, places, z, weight) -> tuple[VaryingScale, np.ndarray]:
    """Fit the scale to residuals z (n,) at places (n, D + 1) with weights (n,).

    Returns
    -------
    The scale, and the factor at each row predicted from the other rows, (n,).
    """
    shared, obs, ends = process.shared, _observed(z, weight), (process.low, process.high)
    places = places.clip(*ends)
    blocks = [slice(start, start + AT_A_TIME) for start in range(0, len(z), AT_A_TIME)]
    messages = [expert_message(shared, _NOISE, places[some], obs[some]) for some in blocks]
    belief = Committee(sum(messages[1:], messages[0])).posterior
    log_scale = np.concatenate([shared.design(places[some]) @ belief.mean for some in blocks])
    level = math.log(float(np.average(np.exp(log_scale), weights=weight)))
    return VaryingScale(shared, belief.mean, level, *ends), _bounded(
        np.concatenate([_without_own(shared, belief, places[some], obs[some]) for some in blocks]) - level
    )


def _without_own(shared, belief, places, obs):
    """Leave-one-out mean of the log factor at each row, (n,)."""
    return left_out_of_committee(shared, _NOISE, belief, places, obs, np.arange(len(places)))[0]


def _bounded(log_factor):
    return np.exp(np.clip(log_factor, -LARGEST_LOG, LARGEST_LOG))


def _observed(z, weight) -> Observations:
    return replace(unweighted(log_squares(z)), weight=np.asarray(weight, dtype=float))


def settle_process(places, z, units: list[np.ndarray], *, seed=0) -> Process:
    """Learn the process: choose the hyper-parameters of largest evidence over blocks of residuals.

    Parameters
    ----------
    places, z : residuals z (n,) at places (n, D + 1)
    units : candidate lengthscales of the inputs, (D,) each, of which only the common factor is learned; for example
        those of f, or equal ones
    """
    order = np.random.default_rng(seed).permutation(len(places))
    blocks = [order[k : k + BLOCK] for k in range(0, min(len(order), BLOCK * BLOCKS), BLOCK)]
    seen = [(places[some], _observed(z[some], np.ones(len(some)))) for some in blocks]
    deviation = max(round(float(places[:, -1].std()), 6), LEAST_DEVIATION)
    found = [_climbed(seen, np.append(unit, 0.0), np.append(0.0 * unit, deviation)) for unit in units]
    _, variance, lengthscale = min(found, key=lambda one: one[0])
    count = max(LEAST_POINTS, min(POINTS, NUMBERS // places.shape[1]))
    ends = np.round([places.min(axis=0), places.max(axis=0)], 6)
    return Process(np.round(places[order[:count]], 6), variance, lengthscale, *ends)


def _climbed(seen, inputs, variances):
    """Loss, variance and lengthscales (D + 1,) of largest evidence; lengthscales are a combination of two vectors.

    `inputs` and `variances` (D + 1,) are the units of the input part and of the log-variance part, 0 elsewhere.
    """

    def at(logs):
        value, along, across = np.exp(logs)
        return value, along * inputs + across * variances

    def loss(logs):
        value, lengthscale = at(logs)
        kernel = _kernel(value, lengthscale)
        try:
            found = [local_evidence(kernel, Mean("constant"), _NOISE, places, obs) for places, obs in seen]
        except NotPositiveDefinite:
            return math.inf, np.zeros(3)
        gradient = np.sum([slope for _, slope in found], axis=0)
        slopes = dict(zip(kernel.parameters, np.split(gradient[:-1], _ends(kernel)), strict=True))
        *along, across = slopes["lengthscale"]
        return -sum(value for value, _ in found), -np.array([slopes["variance"][0], np.sum(along), across])

    how = {"jac": True, "method": "L-BFGS-B", "bounds": np.log(BOUNDS), "options": {"maxiter": STEPS}}
    found = minimize(loss, np.log(START), **how)
    return float(found.fun), *at(np.round(found.x, DECIMALS))


def _ends(kernel):
    return np.cumsum([len(value) for value in kernel.parameters.values()])[:-1]


def _kernel(variance, lengthscale) -> Kernel:
    kernel = parse_kernel("se", inputs=len(lengthscale))
    return kernel.with_parameters({"variance": np.array([variance]), "lengthscale": np.asarray(lengthscale)})
