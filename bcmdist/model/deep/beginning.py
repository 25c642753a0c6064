"""Where the climb of a deep Gaussian process begins: layers that hand on what matters of the inputs.

Hidden units begin as the directions along which inputs and targets vary together most (partial least squares; where
there are no more of these, as random ones), so that the first layers are nearly planes, and the last one as the
regression of the targets on these (Bui et al., section 8.1, begin near the identity).
"""

from dataclasses import replace

import numpy as np

from bcmdist.model.deep.layer import Layer
from bcmdist.model.deep.rows import through

# Standard deviations to which hidden values at centres are known, of their noise, and lengthscales of later layers in
# units of their inputs. Arbitrary.
HIDDEN_SD, HIDDEN_NOISE, LENGTHSCALE = 0.1, 1e-3, 1.5
NOTHING = 1e-6  # of the length of a vector: rounding


def first_layers(centres, lengthscale, X, y, units, depth, rng) -> list[Layer]:
    """All layers but the last: D inputs to `units` outputs, each of unit variance over the rows X (n, D).

    Parameters
    ----------
    centres : (M, D), of the first layer
    """
    plane = directions(X / lengthscale, y, units, rng) / lengthscale[:, None]
    layers: list[Layer] = []
    for k in range(depth - 1):
        if k:
            H = through([layer.stage() for layer in layers], X)[-1].mean
            centres, lengthscale, plane = spread_over(H, len(centres), rng), np.full(units, LENGTHSCALE), np.eye(units)
        layers.append(_layer(centres, lengthscale, HIDDEN_NOISE, (centres - centres.mean(axis=0)) @ plane))
    return layers


def last_layer(layers, centres, lengthscale, X, y, noise, rows, rng) -> Layer:
    """The last layer, which regresses targets y (n,) on what the others make of X, a sample of so many rows."""
    H = X
    if layers:
        H = through([layer.stage() for layer in layers], X)[-1].mean
        centres, lengthscale = spread_over(H, len(centres), rng), np.full(H.shape[1], LENGTHSCALE)
    layer = _layer(centres, lengthscale, noise, np.zeros((len(centres), 1)))
    stage = layer.stage()
    V = np.linalg.solve(layer.factor, through([stage], H)[0].psi1.T).T
    precision = V.T @ V / noise
    mean = np.linalg.solve(np.eye(len(centres)) + precision, V.T @ y / noise)
    root = np.linalg.cholesky(rows / len(X) * precision + np.eye(len(centres)))
    return replace(layer, mean=mean[None], root=root[None])


def _layer(centres, lengthscale, noise, values):
    """A layer whose processes have the values (M, U) at its centres."""
    M, U = values.shape
    root = np.tile(np.eye(M) / HIDDEN_SD, (U, 1, 1))
    start = Layer(centres, np.log(lengthscale), np.array(0.0), np.log(noise), np.zeros((U, M)), root)
    return replace(start, mean=np.linalg.solve(start.factor, values).T)


def directions(X, y, units, rng) -> np.ndarray:
    """Weights (D, units) of uncorrelated combinations of the inputs, each of unit variance over the rows."""
    centred, y = X - X.mean(axis=0), y - y.mean()
    left, scores = centred.copy(), np.empty((len(X), units))
    least = NOTHING * np.linalg.norm(centred)
    for k in range(units):
        w = left.T @ y
        if np.linalg.norm(w) <= least * np.linalg.norm(y):
            w = rng.normal(size=len(w))
        t = left @ w
        if np.linalg.norm(t) <= least:  # no direction is left
            t = centred @ rng.normal(size=len(w))
        scores[:, k] = t * np.sqrt(len(X)) / max(np.linalg.norm(t), np.finfo(float).tiny)
        left -= np.outer(t, t @ left) / max(t @ t, np.finfo(float).tiny)
    return np.linalg.lstsq(centred, scores, rcond=None)[0]


def spread_over(H, count, rng) -> np.ndarray:
    """So many of the rows H (n, D), drawn at random; with some scatter where there are fewer."""
    if len(H) >= count:
        return H[rng.permutation(len(H))[:count]].copy()
    return H[rng.integers(len(H), size=count)] + 0.1 * H.std(axis=0) * rng.normal(size=(count, H.shape[1]))
