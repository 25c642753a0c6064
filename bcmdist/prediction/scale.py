"""The scale of errors where it varies with the inputs: a second Gaussian regression, of log squared residuals.

With z the standardised residual of a row left out, log z^2 - E log chi^2_1 is an unbiased observation of the log of
the factor by which its variance is off, and the variance of that observation is known: pi^2 / 2 (of the log of a
chi^2_1). It stays fixed; learned, it overfits. The factor is a process of a smooth kernel through some query points
that rows speak about each on its own, so it is a sum over rows and adds, fades and forgets as messages do.
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
# Points of the process, and rows of a block of those that it is learned on, and blocks.
POINTS, BLOCK, BLOCKS = 100, 400, 4
STEPS = 12
# Bounds while learning: of the variance of the log, and of lengthscales in units of a start.
BOUNDS = ((1e-3, 1e1), (0.1, 10.0))
# The log of a factor is within this of the mean one: a factor of 400 in variance, 20 in standard deviation.
LARGEST_LOG = 6.0

_NOISE = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([LOG_VARIANCE])})


@dataclass(frozen=True)
class Process:
    """The prior of the log of the factor: settled once, so that rows that come later add to what others have said."""

    points: np.ndarray
    """(Q, D), scaled"""
    variance: float
    lengthscale: np.ndarray
    """(D,)"""

    @property
    def shared(self) -> Query:
        """Its query values, through which alone rows see it."""
        kernel = _kernel(self.variance, self.lengthscale)
        return prepare(self.points, kernel=kernel, mean=Mean("constant"), residual="none")

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

    def factor(self, X) -> np.ndarray:
        """By which the variance of an observation is multiplied at scaled inputs X (n, D), (n,)."""
        return _bounded(self.shared.design(X) @ self.mean - self.level)


def log_squares(z) -> np.ndarray:
    """Observations of the log of the factor, of standardised residuals (n,)."""
    return 2.0 * np.log(np.maximum(np.abs(z), SMALLEST)) - LOG_MEAN


def fit_scale(process: Process, X, z, weight) -> tuple[Scale, np.ndarray]:
    """The scale after residuals z (n,) at scaled inputs X (n, D), each counted so often (n,); and its factor at each
    row as the others have it, (n,)."""
    shared, obs = process.shared, _observed(z, weight)
    belief = Committee(expert_message(shared, _NOISE, X, obs)).posterior
    mean, _ = left_out_of_committee(shared, _NOISE, belief, X, obs, np.arange(len(X)))
    level = math.log(float(np.average(np.exp(mean.clip(-50.0, 50.0)), weights=weight)))
    return Scale(shared, belief.mean, level), _bounded(mean - level)


def _bounded(log_factor):
    return np.exp(np.clip(log_factor, -LARGEST_LOG, LARGEST_LOG))


def _observed(z, weight) -> Observations:
    return replace(unweighted(log_squares(z)), weight=np.asarray(weight, dtype=float))


def settle_process(X, z, units: list[np.ndarray], *, seed=0) -> Process:
    """The process whose evidence over blocks of residuals is largest.

    Parameters
    ----------
    X, z : residuals (n,) at scaled inputs (n, D)
    units : lengthscales (D,) in whose proportion its own may be: those of f, say, or one for all inputs
    """
    order = np.random.default_rng(seed).permutation(len(X))
    blocks = [order[k : k + BLOCK] for k in range(0, min(len(order), BLOCK * BLOCKS), BLOCK)]
    seen = [(X[some], _observed(z[some], np.ones(len(some)))) for some in blocks]
    found = [_climbed(seen, np.asarray(unit, dtype=float)) for unit in units]
    _, variance, lengthscale = min(found, key=lambda one: one[0])
    return Process(np.round(X[order[:POINTS]], 6), variance, lengthscale)


def _climbed(seen, unit):
    """Loss, variance and lengthscales in proportion to a unit where the evidence is largest."""

    def loss(logs):
        kernel = _kernel(math.exp(logs[0]), np.exp(logs[1]) * unit)
        try:
            found = [local_evidence(kernel, Mean("constant"), _NOISE, X, obs) for X, obs in seen]
        except NotPositiveDefinite:
            return math.inf, np.zeros(2)
        gradient = np.sum([slope for _, slope in found], axis=0)
        parts = dict(zip(kernel.parameters, np.split(gradient[:-1], _ends(kernel)), strict=True))
        return -sum(value for value, _ in found), -np.array([parts[name].sum() for name in ("variance", "lengthscale")])

    start, bounds = np.array([math.log(0.5), 0.0]), np.log(BOUNDS)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS})
    return float(found.fun), math.exp(found.x[0]), np.exp(found.x[1]) * unit


def _ends(kernel):
    return np.cumsum([len(value) for value in kernel.parameters.values()])[:-1]


def _kernel(variance, lengthscale) -> Kernel:
    kernel = parse_kernel("se", inputs=len(lengthscale))
    return kernel.with_parameters({"variance": np.array([variance]), "lengthscale": np.asarray(lengthscale)})
