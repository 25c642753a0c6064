"""Messages about Fourier weights: sums over rows by fast transforms instead of products with a design matrix.

Rows are independent given the weights, with residual variance t (`Fourier.truncated_variance`). A message is the sum of
one Gaussian site per row, precision = V'w V,  eta = V'g (SYSTEMS I.4 with Lam = t I); V is never formed. `shared` is a
`Fourier`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.experts.laplace import laplace_mode, step_solver
from bcmdist.experts.low_rank import LowRank
from bcmdist.experts.message import Message
from bcmdist.methods.fourier.belief import MAX_FACTORED
from bcmdist.methods.fourier.krylov import conjugate_gradients
from bcmdist.methods.fourier.weight_mode import weight_mode
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.model.shared.belief import Belief

# Relative residual and largest number of iterations of a Newton step; the next step corrects the remainder.
STEP_RESIDUAL, MAX_STEPS = 1e-11, 2000


def zero_message(shared, likelihood: Likelihood) -> Message:
    """Message of no rows."""
    C = likelihood.processes
    return Message(np.zeros((C, shared.size) if C > 1 else shared.size), np.zeros(shared.message_length), 0.0, 0)


def expert_message(shared, likelihood: Likelihood, X, obs: Observations) -> Message:
    """As `experts.expert.expert_message`, for rows X (n, D), n >= 1."""
    if likelihood.exact:
        return _gaussian_message(shared, X, likelihood.targets(obs), likelihood.noise(obs) + shared.truncated_variance)
    return message_at(shared, likelihood, X, obs, expert_mode(shared, likelihood, X, obs))


def expert_mode(shared, likelihood: Likelihood, X, obs: Observations) -> np.ndarray:
    """Mode f (n,) of the rows of an expert, given no other rows."""
    f = weight_mode(shared, likelihood, X, obs) if likelihood.log_concave else None
    return laplace_mode(FourierCovariance(shared, X), obs, likelihood) if f is None else f


def _gaussian_message(shared, X, y, noise):
    """Message of y = b'v + e, y (n,) or (n, C)."""
    w, processes = 1.0 / noise, y.size // len(y)
    eta, precision = shared.message_sums(X, w, (w * y.T).T.reshape(len(y), -1))
    constant = processes * (len(y) * np.log(2.0 * np.pi) - np.log(w).sum())
    evidence = -0.5 * (np.vdot(y, (w * y.T).T) + constant)
    return Message(eta if y.ndim > 1 else eta[0], precision, float(evidence), len(y))


def conditional_mode(shared, likelihood: OneProcess, X, obs: Observations, mean) -> tuple[np.ndarray, np.ndarray]:
    """Mode f of the rows given v = mean (S,), and b'v at the rows, (n,) each."""
    prior_mean = shared.design_product(X, mean[None])[0]
    own = LowRank(np.full(len(X), shared.truncated_variance), np.empty((len(X), 0)))
    return laplace_mode(own, obs, likelihood, prior_mean), prior_mean


def running_message(shared, likelihood: OneProcess, X, obs: Observations, belief: Belief) -> Message:
    """As `experts.expert.running_message`; linearised given the mean of the belief where no mode is found."""
    f = weight_mode(shared, likelihood, X, obs, belief) if likelihood.log_concave else None
    if f is None:
        f, _ = conditional_mode(shared, likelihood, X, obs, belief.mean)
    return message_at(shared, likelihood, X, obs, f)


def message_at(shared, likelihood: Likelihood, X, obs: Observations, f) -> Message:
    """Message of a likelihood linearised at f (n,): `laplace_message` with Lam = t I."""
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    left, g = 1.0 + w * shared.truncated_variance, w * f + s
    eta, precision = shared.message_sums(X, w / left, (g / left)[:, None])
    evidence = likelihood.log_density(obs, f).sum() - 0.5 * (f @ (w * f) + 2.0 * f @ s)
    evidence += 0.5 * (shared.truncated_variance * (g @ (g / left)) - np.log(left).sum())
    return Message(eta[0], precision, float(evidence), len(f))


def step_message_at(shared, likelihood: OneProcess, X, obs: Observations, f) -> Message:
    """As `experts.laplace.step_message`, with the Hessian at f (n,)."""
    h, s = likelihood.hessian(obs, f), likelihood.score(obs, f)
    left = 1.0 + h * shared.truncated_variance
    eta, precision = shared.message_sums(X, h / left, ((h * f + s) / left)[:, None])
    return Message(eta[0], precision, 0.0, len(f))


@dataclass(frozen=True)
class FourierCovariance:
    """K = t I + V V' of n rows, with the matrix operations that the mode search needs, like `LowRank`."""

    shared: Any
    """`Fourier`"""
    X: np.ndarray
    """(n, D), scaled"""

    def __len__(self):
        return len(self.X)

    def __matmul__(self, a):
        """Return K a for a (n,)."""
        weights = self.shared.transposed_product(self.X, a[:, None])
        return self.shared.truncated_variance * a + self.shared.design_product(self.X, weights)[0]

    def __abs__(self):
        """Elementwise upper bound of |K|."""
        return LowRank(np.zeros(len(self)), np.sqrt(self.diagonal())[:, None])

    def diagonal(self) -> np.ndarray:
        """Diagonal of K, (n,); the features' part is constant because cos^2 + sin^2 = 1."""
        H = self.shared.mean.design(self.X)
        return self.shared.truncated_variance + np.sum(self.shared.scale**2) + np.einsum("ij,ij->i", H, H)

    def solver(self, root) -> Callable:
        """Return the function b -> B^-1 b for B = I + root K root, b (n,).

        With d = (1 + t root^2)^1/2 and T = root / d V:  B^-1 = d^-1 (I - T (I + T'T)^-1 T') d^-1
        """
        d = np.sqrt(1.0 + self.shared.truncated_variance * root**2)
        t = root / d
        precision = self.shared.operator(self.shared.message_sums(self.X, t**2, t[:, None])[1])
        solve = _dense_solver(precision) if precision.size <= MAX_FACTORED else _iterative_solver(precision)

        def inverse(b):
            b = b / d
            pull = self.shared.transposed_product(self.X, (t * b)[:, None])[0]
            return (b - t * self.shared.design_product(self.X, solve(pull)[None])[0]) / d

        return inverse


step_solver.register(FourierCovariance, FourierCovariance.solver)


def _dense_solver(precision):
    A = precision.without_prior()
    A[np.diag_indices_from(A)] += 1.0
    L = linalg.cholesky(A, name="I + V'w V of an expert")
    return lambda b: linalg.cholesky_solve(L, b)


def _iterative_solver(precision):
    preconditioner = precision.preconditioner

    def solve(b):
        residual = STEP_RESIDUAL * max(float(np.linalg.norm(b)), np.finfo(float).tiny)
        return conjugate_gradients(precision, preconditioner.precondition, b, residual=residual, most=MAX_STEPS).x

    return solve
