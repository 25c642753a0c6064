"""Initial layers of a deep Gaussian process, which pass on the relevant directions of the inputs.

Hidden units start as the directions of largest covariance between inputs and targets (partial least squares; random
directions where there are no more of these), so the first layers are nearly linear. The last layer starts as the
regression of the targets on the hidden units. (Bui et al., section 8.1, start near the identity.)
"""

from dataclasses import replace

import numpy as np

from bcmdist.methods.deep.layer import Layer
from bcmdist.methods.deep.rows import through

# Noise variance of the initial regression on hidden units, the layers' noise variance, and lengthscales of later layers
# in units of their inputs. Arbitrary.
TOLD, HIDDEN_NOISE, LENGTHSCALE = 0.1, 1e-3, 1.5
LEAST_SHARE = 1e-6  # added to a sum of precisions before its root is computed
# Remaining inputs shorter than this share of the total are no direction of their own: scaled up, such a unit would be
# steep.
SMALL = 0.05


def first_layers(centres, lengthscale, X, Y, units, depth, rng) -> list[Layer]:
    """All layers but the last: D inputs to `units` outputs, each of unit variance over the rows X (n, D).

    Parameters
    ----------
    centres : (M, D), of the first layer
    Y : (n, C), targets of the last layer
    """
    H = (X - X.mean(axis=0)) / lengthscale @ directions(X / lengthscale, Y, units, rng)
    layers: list[Layer] = []
    for k in range(depth - 1):
        inputs = X if k == 0 else H
        if k:
            centres, lengthscale = drawn_rows(H, len(centres), rng), np.full(units, LENGTHSCALE)
        layers.append(regression(centres, lengthscale, inputs, H, told=TOLD, noise=HIDDEN_NOISE))
        H = through([layers[-1].stage()], inputs)[-1].mean
    return layers


def last_layer(layers, centres, lengthscale, X, Y, noise, rng) -> Layer:
    """The last layer, whose C processes regress the targets Y (n, C) on the outputs of the other layers at X."""
    H = X
    if layers:
        H = through([layer.stage() for layer in layers], X)[-1].mean
        centres, lengthscale = drawn_rows(H, len(centres), rng), np.full(H.shape[1], LENGTHSCALE)
    return regression(centres, lengthscale, H, Y, told=noise, noise=noise)


def regression(centres, lengthscale, X, Y, *, told, noise) -> Layer:
    """A layer with the posterior given outputs Y (n, U) at the rows X (n, D), observed with noise variance `told`."""
    M, U = len(centres), Y.shape[1]
    nothing = np.zeros((U, M)), np.zeros((U, M, M))
    layer = Layer(centres, np.log(lengthscale), np.array(0.0), np.log(noise), *nothing)
    V = np.linalg.solve(layer.factor, through([layer.stage()], X)[0].psi1.T).T
    precision = V.T @ V / told + LEAST_SHARE * np.eye(M)
    mean = np.linalg.solve(np.eye(M) + precision, V.T @ Y / told)
    return replace(layer, mean=mean.T, root=np.tile(np.linalg.cholesky(precision), (U, 1, 1)))


def directions(X, Y, units, rng) -> np.ndarray:
    """Weights (D, units) of uncorrelated linear combinations of the inputs, each of unit variance over the rows.

    For several targets Y (n, C), each unit uses the combination of targets with the largest covariance with the inputs.
    """
    centred, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    left, scores = centred.copy(), np.empty((len(X), units))
    least = SMALL * np.linalg.norm(centred)
    for k in range(units):
        w = _foremost(left.T @ Y)
        t = left @ (w / max(np.linalg.norm(w), np.finfo(float).tiny))
        if np.linalg.norm(t) <= least:
            t = centred @ rng.normal(size=len(w))
        scores[:, k] = t * np.sqrt(len(X)) / max(np.linalg.norm(t), np.finfo(float).tiny)
        left -= np.outer(t, t @ left) / max(t @ t, np.finfo(float).tiny)
    return np.linalg.lstsq(centred, scores, rcond=None)[0]


def _foremost(A):
    """The longest combination A v (D,), |v| = 1, of the columns of A (D, C), with the sign of its largest component."""
    v = np.linalg.svd(A)[2][0]
    return A @ (v * np.sign(v[np.abs(v).argmax()]))


def drawn_rows(H, count, rng) -> np.ndarray:
    """`count` rows of H (n, D), drawn at random; with added scatter where there are fewer."""
    if len(H) >= count:
        return H[rng.permutation(len(H))[:count]].copy()
    return H[rng.integers(len(H), size=count)] + 0.1 * H.std(axis=0) * rng.normal(size=(count, H.shape[1]))
