"""What is believed of f at inputs that were drawn, and may lie where a model is not meant to predict.

Waves are refused outside their box (`bcmdist.model.shared.fourier`): for a row of the user that is an error. A draw
about a row inside has the prior there, the same as far from all rows: f(x) = h(x)'w + g(x), with the weights w of the
mean as they are believed, and g independent of all that was measured.
"""

from functools import singledispatch

import numpy as np

from bcmdist import linalg
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.fourier.belief import FourierBelief
from bcmdist.model.shared.fourier.features import Fourier
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.latent_predictor import LatentPredictor


def latent_of_draws(predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs X (n, D) that were drawn: shapes as of `Predictor.latent`."""
    return _latent(predictor.model.shared, predictor, X)


@singledispatch
def _latent(shared: Shared, predictor, X):
    return predictor.latent(X)


@_latent.register
def _(shared: Fourier, predictor, X):
    outside = ((shared.low > X) | (shared.high < X)).any(axis=1)
    if not outside.any():
        return predictor.latent(X)
    inside = predictor.latent(X[~outside])
    found = tuple(np.empty((len(X), *one.shape[1:])) for one in inside)
    for values, near, far in zip(found, inside, _prior(shared, predictor.belief, X[outside]), strict=True):
        values[~outside], values[outside] = near, far
    return found


def _prior(shared, belief: Belief, X):
    """Mean and variance where rows say nothing but of the mean, (n,) each, or (n, C)."""
    H = shared.mean.design(X)
    mean = H @ belief.mean[..., shared.functions :].T
    variance = shared.kernel.diagonal(X) + np.einsum("ij,jk,ik->i", H, _of_mean_weights(shared, belief), H)
    return mean, variance if mean.ndim == 1 else np.repeat(variance[:, None], mean.shape[1], axis=1)


def _of_mean_weights(shared, belief: Belief):
    """Covariance of the weights of the mean, (P, P): x'C y = (|x + y|^2 - |x - y|^2) / 4 in the norm of C."""
    P = shared.size - shared.functions
    units = np.eye(P, shared.size, shared.functions)
    if not isinstance(belief, FourierBelief):
        A = linalg.solve_right_transposed(belief.factor, np.asfortranarray(units))
        return A @ A.T
    sums, differences = (units[:, None] + sign * units for sign in (1.0, -1.0))
    both = [belief.variances(one.reshape(-1, shared.size)).reshape(P, P) for one in (sums, differences)]
    return 0.25 * (both[0] - both[1])
