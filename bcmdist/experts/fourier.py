"""Experts about the weights of waves: sums over rows by fast transforms, in place of products of a design.

Nothing couples rows but the shared variables (residual "waves"), so that a message is that of a Gaussian site of each
row, precision = V'w V,  eta = V'g,  evidence = what is left (SYSTEMS I.4 at Lam = 0); V is never written down.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import laplace_mode, step_solver
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.message import Message
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.model.shared.fourier.features import MOST_FACTORED, Fourier
from bcmdist.model.shared.fourier.krylov import conjugate_gradients

# Of the steps in a search for a mode, relative to what they are made of, and the steps of each: what is left goes into
# the next one.
STEP_RESIDUAL, MOST_STEPS = 1e-11, 2000


def no_message(shared: Fourier, likelihood: Likelihood) -> Message:
    """The message of no rows."""
    C = likelihood.processes
    return Message(np.zeros((C, shared.size) if C > 1 else shared.size), np.zeros(shared.numbers), 0.0, 0)


def own_message(shared: Fourier, likelihood: Likelihood, X, obs: Observations) -> Message:
    """As `expert_message`, of rows X (n, D), n >= 1."""
    if likelihood.exact:
        return _gaussian_message(shared, X, likelihood.targets(obs), likelihood.noise(obs))
    return message_at(shared, likelihood, X, obs, laplace_mode(WaveCovariance(shared, X), obs, likelihood))


def _gaussian_message(shared, X, y, noise):
    """Of y = f + e, y (n,) or (n, C)."""
    w, processes = 1.0 / noise, y.size // len(y)
    eta, precision = shared.sums(X, w, (w * y.T).T.reshape(len(y), -1))
    constant = processes * (len(y) * np.log(2.0 * np.pi) - np.log(w).sum())
    evidence = -0.5 * (np.vdot(y, (w * y.T).T) + constant)
    return Message(eta if y.ndim > 1 else eta[0], precision, float(evidence), len(y))


def message_at(shared: Fourier, likelihood: Likelihood, X, obs: Observations, f) -> Message:
    """Message of a likelihood linearised at f (n,): as `laplace_message` with nothing left by the shared variables."""
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    eta, precision = shared.sums(X, w, (w * f + s)[:, None])
    evidence = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    return Message(eta[0], precision, float(evidence), len(f))


def step_message_at(shared: Fourier, likelihood: OneProcess, X, obs: Observations, f) -> Message:
    """As `step_message`, of the Hessian at f (n,)."""
    h, s = likelihood.hessian(obs, f), likelihood.score(obs, f)
    eta, precision = shared.sums(X, h, (h * f + s)[:, None])
    return Message(eta[0], precision, 0.0, len(f))


@dataclass(frozen=True)
class WaveCovariance:
    """K = V V' of n rows; of a matrix it has what the search for a mode needs, as `LowRank`."""

    shared: Fourier
    X: np.ndarray
    """(n, D), scaled"""

    def __len__(self):
        return len(self.X)

    def __matmul__(self, a):
        """K a for a (n,)."""
        return self.shared.values(self.X, self.shared.pulls(self.X, a[:, None]))[0]

    def __abs__(self):
        """A bound of the absolute values of K."""
        return LowRank(np.zeros(len(self)), np.sqrt(self.diagonal())[:, None])

    def diagonal(self) -> np.ndarray:
        """(n,): that of the waves is the same everywhere, for cos^2 + sin^2 = 1."""
        H = self.shared.mean.design(self.X)
        return np.sum(self.shared.scale**2) + np.einsum("ij,ij->i", H, H)

    def solver(self, root) -> Callable:
        """B^-1 of B = I + root K root, as a function of b (n,):  B^-1 = I - root V (I + V'w V)^-1 V' root."""
        precision = self.shared.operator(self.shared.sums(self.X, root**2, root[:, None])[1])
        solve = _factor_of(precision) if precision.size <= MOST_FACTORED else _iteration_of(precision)

        def inverse(b):
            pull = self.shared.pulls(self.X, (root * b)[:, None])[0]
            return b - root * self.shared.values(self.X, solve(pull)[None])[0]

        return inverse


step_solver.register(WaveCovariance, WaveCovariance.solver)


def _factor_of(precision):
    A = precision.without_prior()
    A[np.diag_indices_from(A)] += 1.0
    L = linalg.cholesky(A, name="I + V'w V of an expert")
    return lambda b: linalg.cholesky_solve(L, b)


def _iteration_of(precision):
    root = precision.root

    def solve(b):
        residual = STEP_RESIDUAL * max(float(np.linalg.norm(b)), np.finfo(float).tiny)
        return conjugate_gradients(precision, root.precondition, b, residual=residual, most=MOST_STEPS).x

    return solve
