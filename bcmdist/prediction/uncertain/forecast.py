"""Forecasts of a time series over several steps, with uncertainty (thesis, section 4.2; SYSTEMS T21, T22).

A model of y_t given x_t = (y_t-1, ..., y_t-L) predicts one step. Later steps start from inputs that are themselves
predicted:

    x ~ N(u, S)  ->  y: mean m, variance v (noise included), c = cov(y, x)
    next  u = (m, u_1, ..., u_L-1),   S = [[v, c'], [c, S]] without its last row and column

Further inputs with known values at each step follow the L lags and have no variance.

    naive       S = 0: a forecast is treated as a measurement (T21)
    exact       m, v and c in closed form (T18)
    taylor      from slopes and curvatures at u (T19); c = S m'(u)
    montecarlo  sample paths: each draws its y from the predictive distribution and continues from there

Steps are linked by their joint normal moments or by paths. The posterior of f is used separately at each step; that f
is the same function at all steps is ignored, as in the thesis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import unweighted
from bcmdist.prediction.interface import LatentPredictor
from bcmdist.prediction.normal_mixtures import mixture_moments, mixture_quantile
from bcmdist.prediction.scored_rows import predict_rows
from bcmdist.prediction.uncertain import input_uncertainty

PATHS = 500
Step = Callable[[LatentPredictor, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Maps scaled states (n, D) and covariances (n, D, D) to mean and variance of f, (n,), and cov(f, x), (n, D)"""


@dataclass(frozen=True)
class Forecast:
    """Forecasts of n series over K steps, in original units."""

    mean: np.ndarray
    """(n, K)"""
    variance: np.ndarray
    """predictive variance of the measurement, (n, K)"""
    lower95: np.ndarray
    """lower limit of the 95 % interval, (n, K)"""
    upper95: np.ndarray
    """upper limit of the 95 % interval, (n, K)"""


def _naive(predictor, U, S):
    mean, variance = predictor.latent(U)
    return mean, variance, np.zeros_like(U)


def _exact(predictor, U, S):
    parts = [
        input_uncertainty.moments_at(predictor.model.shared, predictor.belief, u, s) for u, s in zip(U, S, strict=True)
    ]
    mean, variance, with_x = zip(*parts, strict=True)
    return np.array(mean), np.array(variance), np.array(with_x)


def _taylor(predictor, U, S):
    mean, variance = input_uncertainty.taylor_moments(predictor, U, S)
    return mean, variance, input_uncertainty.with_inputs(predictor, U, S)


STEPS: dict[str, Step] = {"naive": _naive, "exact": _exact, "taylor": _taylor}


def forecast(predictor: LatentPredictor, state, inputs, way: str, *, seed: int = 0) -> Forecast:
    """Forecast n series K steps ahead, feeding predictions back as inputs; arguments and result in original units.

    Parameters
    ----------
    predictor : of a model with a normal likelihood, whose inputs are the last L values, newest first, then known inputs
    state : (n, L), last values of each series, newest first
    inputs : (n, K, D - L), known inputs at each step
    way : how the uncertainty of predicted inputs is propagated: "naive" (ignored), "exact" (closed-form moments),
    "taylor"
        (moments from slopes and curvatures) or "montecarlo" (sample paths)
    seed : random seed of the sample paths of "montecarlo"

    Returns
    -------
    Mean, variance and 95 % limits of the measurement at each step, (n, K) each.
    """
    if way == "montecarlo":
        return _paths(predictor, np.asarray(state, dtype=float), inputs, np.random.default_rng(seed))
    scaling = predictor.model.scaling
    u = np.array(state, dtype=float)
    (n, L), D = u.shape, len(scaling.x_scale)
    S = np.zeros((n, D, D))
    predicted = []
    for k in range(inputs.shape[1]):
        U = np.column_stack([u, inputs[:, k]])
        mean, variance, with_x = STEPS[way](predictor, scaling.inputs(U), scaling.input_covariances(U, S))
        seen = _observed(predictor, U, mean, variance)
        predicted.append(seen)
        crossed = with_x / scaling.slopes(U) * scaling.y_scale
        u = np.column_stack([seen["observation_mean"], u[:, :-1]])
        if way != "naive":
            S[:, :L, :L] = _shifted(S[:, :L, :L], seen["observation_variance"], crossed[:, :L])
    columns = ("observation_mean", "observation_variance", "lower95", "upper95")
    return Forecast(*(np.column_stack([seen[name] for seen in predicted]) for name in columns))


def mixed(each: Sequence[Forecast], weights=None) -> Forecast:
    """Forecast of the mixture of the members' normal distributions at each step; for one member, its forecast.

    weights : (K,); None where all are equal
    """
    if len(each) == 1:
        return each[0]
    means, variances = np.array([one.mean for one in each]), np.array([one.variance for one in each])
    sds = np.sqrt(variances)
    limits = (mixture_quantile(means, sds, q, weights) for q in (0.025, 0.975))
    return Forecast(*mixture_moments(means, variances, weights), *limits)


def _shifted(S, variance, crossed):
    """Covariances of the states after one step, (n, L, L)."""
    later = np.empty_like(S)
    later[:, 1:, 1:] = S[:, :-1, :-1]
    later[:, 0, 1:] = later[:, 1:, 0] = crossed[:, :-1]
    later[:, 0, 0] = variance
    return later


def _observed(predictor, U, mean, variance):
    """Predictive distribution of the measurement, in original units, for given moments of f."""
    return predict_rows(predictor, U, unweighted(np.full(len(U), np.nan)), uncertainty=Moments(mean, variance))


@dataclass(frozen=True)
class Moments:
    """Precomputed moments of f, used instead of the predictor's."""

    mean: np.ndarray
    variance: np.ndarray

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Return the precomputed moments."""
        return self.mean, self.variance


def _paths(predictor, state, inputs, generator):
    n, steps = inputs.shape[:2]
    u = np.repeat(state, PATHS, axis=0)
    drawn = np.empty((n, PATHS, steps))
    for k in range(steps):
        U = np.column_stack([u, np.repeat(inputs[:, k], PATHS, axis=0)])
        X = predictor.model.scaling.inputs(U)
        latent = predictor.model.shared.predict_draws(predictor, X) if k else predictor.latent(X)
        seen = _observed(predictor, U, *latent)
        y = seen["observation_mean"] + np.sqrt(seen["observation_variance"]) * generator.standard_normal(len(U))
        drawn[:, :, k] = y.reshape(n, PATHS)
        u = np.column_stack([y, u[:, :-1]])
    lower, upper = np.quantile(drawn, [0.025, 0.975], axis=1)
    return Forecast(drawn.mean(axis=1), drawn.var(axis=1), lower, upper)
