"""The scale of errors where it varies with the inputs: a second Gaussian regression, of log squared residuals.

With z the standardised residual of a row left out, log z^2 - E log chi^2_1 is an unbiased observation of the log of
the factor by which its variance is off, and the variance of that observation is known: pi^2 / 2 (of the log of a
chi^2_1). It stays fixed; learned, it overfits. The factor is a process of a smooth kernel of the *place* of a row,
which is its scaled inputs and the log of the variance that the model predicts there: (D + 1,). Rows speak each on its
own about the values at some points, so what they say is a sum over rows, and adds, fades and forgets as messages do.
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

# Of log chi^2_1: its mean, -log 2 - Euler's constant, and its variance.
LOG_MEAN, LOG_VARIANCE = -1.2703628454614782, math.pi**2 / 2.0
# |z| that count as this small at least: repeated rows may leave none, of which there is no log.
SMALLEST = 0.01
# Points of the process: fewer where they have so many numbers that each commit would be full of them.
POINTS, LEAST_POINTS, NUMBERS = 100, 10, 2**13
# Rows of a block of those that it is learned on, and blocks.
BLOCK, BLOCKS = 400, 4
STEPS = 12
# Rows that are looked at at a time: what they say is a sum, and memory does not grow with them.
AT_A_TIME = 2048
# Share of the variance added at the points: without it a smooth kernel's rounding errors are seen in the ninth digit.
JITTER = 1e-5
# Of the logs of what is learned: nearly the same residuals, summed in another order, are to settle the same process.
DECIMALS = 2
# Start and bounds while learning: the variance of the log, lengthscales of the inputs in their units, and that of the
# log of the variance in its standard deviations, which are no less than so much.
START, BOUNDS = (0.5, 1.0, 2.0), ((1e-3, 1e1), (0.1, 10.0), (0.3, 30.0))
LEAST_SPREAD = 0.05
# The log of a factor is within this of the mean one: a factor of 55 in variance, 7 in standard deviation.
LARGEST_LOG = 4.0
# Variances are within this: of some distributions there is none.
FINITE = (1e-100, 1e100)

_NOISE = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([LOG_VARIANCE])})


@dataclass(frozen=True)
class Process:
    """The prior of the log of the factor: settled once, so that rows that come later add to what others have said."""

    points: np.ndarray
    """(Q, D + 1)"""
    variance: float
    lengthscale: np.ndarray
    """(D + 1,)"""

    @property
    def shared(self) -> Query:
        """Its query values, through which alone rows see it."""
        kernel = _kernel(self.variance, self.lengthscale)
        return prepare(self.points, kernel=kernel, mean=Mean("constant"), residual="none", jitters=(JITTER,))

    def to_json(self) -> dict:
        """JSON-ready, for `from_json`."""
        return {
            "points": self.points.tolist(),
            "variance": self.variance,
            "lengthscale": self.lengthscale.tolist(),
        }

    @classmethod
    def from_json(cls, known) -> "Process":
        """What `to_json` gives."""
        return cls(np.array(known["points"]), known["variance"], np.array(known["lengthscale"]))


@dataclass(frozen=True)
class Scale:
    """What residuals say of the factor: its mean level is 1 over these."""

    shared: Query
    mean: np.ndarray
    """of the query values, (S,)"""
    level: float

    def factor(self, places) -> np.ndarray:
        """By which the variance of an observation is multiplied at places (n, D + 1), (n,)."""
        blocks = [places[start : start + AT_A_TIME] for start in range(0, max(len(places), 1), AT_A_TIME)]
        return _bounded(np.concatenate([self.shared.design(some) @ self.mean for some in blocks]) - self.level)


def places_of(X, variance) -> np.ndarray:
    """Of scaled inputs X (n, D) where the model predicts an observation with a variance (n,), (n, D + 1)."""
    return np.column_stack([X, np.log(np.clip(variance, *FINITE))])


def log_squares(z) -> np.ndarray:
    """Observations of the log of the factor, of standardised residuals (n,)."""
    return 2.0 * np.log(np.maximum(np.abs(z), SMALLEST)) - LOG_MEAN


def fit_scale(process: Process, places, z, weight) -> tuple[Scale, np.ndarray]:
    """The scale after residuals z (n,) at places (n, D + 1), each counted so often (n,); and its factor at each row as
    the others have it, (n,)."""
    shared, obs = process.shared, _observed(z, weight)
    blocks = [slice(start, start + AT_A_TIME) for start in range(0, len(z), AT_A_TIME)]
    messages = [expert_message(shared, _NOISE, places[some], obs[some]) for some in blocks]
    belief = Committee(sum(messages[1:], messages[0])).posterior
    known = np.concatenate([shared.design(places[some]) @ belief.mean for some in blocks])
    level = math.log(float(np.average(np.exp(known), weights=weight)))
    return Scale(shared, belief.mean, level), _bounded(
        np.concatenate([_without_own(shared, belief, places[some], obs[some]) for some in blocks]) - level
    )


def _without_own(shared, belief, places, obs):
    """The log of the factor at each of some rows, as the others have it, (n,)."""
    return left_out_of_committee(shared, _NOISE, belief, places, obs, np.arange(len(places)))[0]


def _bounded(log_factor):
    return np.exp(np.clip(log_factor, -LARGEST_LOG, LARGEST_LOG))


def _observed(z, weight) -> Observations:
    return replace(unweighted(log_squares(z)), weight=np.asarray(weight, dtype=float))


def settle_process(places, z, units: list[np.ndarray], *, seed=0) -> Process:
    """The process whose evidence over blocks of residuals is largest.

    Parameters
    ----------
    places, z : residuals (n,) at places (n, D + 1)
    units : lengthscales (D,) in whose proportion those of its inputs may be: those of f, say, or one for all
    """
    order = np.random.default_rng(seed).permutation(len(places))
    blocks = [order[k : k + BLOCK] for k in range(0, min(len(order), BLOCK * BLOCKS), BLOCK)]
    seen = [(places[some], _observed(z[some], np.ones(len(some)))) for some in blocks]
    spread = max(round(float(places[:, -1].std()), 6), LEAST_SPREAD)
    found = [_climbed(seen, np.append(unit, 0.0), np.append(0.0 * unit, spread)) for unit in units]
    _, variance, lengthscale = min(found, key=lambda one: one[0])
    count = max(LEAST_POINTS, min(POINTS, NUMBERS // places.shape[1]))
    return Process(np.round(places[order[:count]], 6), variance, lengthscale)


def _climbed(seen, inputs, variances):
    """Loss, variance and lengthscales where the evidence is largest, the latter multiples of two vectors (D + 1,)."""

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
