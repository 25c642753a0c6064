"""Averages over uncertain inputs by product rules: oracles of exact moments."""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

SPREAD = np.array([[0.30, 0.12], [0.12, 0.20]])
VARIANCE = np.array([0.04, 0.09])


@dataclass(frozen=True)
class Bare:
    """What the ways look at of a model."""

    shared: object


def quadrature(predictor, U, S, nodes=60):
    """Mean, variance, and E f x' - E f E x', by a product rule over x ~ N(u, S)."""
    x, w = hermegauss(nodes)
    grid, weight = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2), np.outer(w, w).ravel() / w.sum() ** 2
    found = []
    for u, s in zip(U, S, strict=True):
        points = u + grid @ np.linalg.cholesky(s).T
        mean, variance = predictor.latent(points)
        average = weight @ mean
        found.append((average, weight @ variance + weight @ (mean - average) ** 2, (weight * mean) @ (points - u)))
    return tuple(np.array(part) for part in zip(*found, strict=True))


def spread(U, scale=1.0):
    return np.repeat(scale * SPREAD[None], len(U), axis=0)


def averaged(predict, X, names, nodes=60):
    """Mean and variance of what is predicted, over x ~ N(u, diag(VARIANCE)), by a product rule."""
    z, w = hermegauss(nodes)
    grid, weight = np.stack(np.meshgrid(z, z), -1).reshape(-1, 2), np.outer(w, w).ravel() / w.sum() ** 2
    found = []
    for u in X:
        said = predict(u + grid * np.sqrt(VARIANCE))
        mean, variance = (said[name] for name in names)
        found.append((weight @ mean, weight @ variance + weight @ (mean - weight @ mean) ** 2))
    return np.array(found).T
