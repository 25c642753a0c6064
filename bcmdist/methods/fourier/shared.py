"""Shared variables: weights of equispaced Fourier features (Greengard, Rachh & Barnett 2022).

    f(x) = sum_k D_k v_k cas(2 pi h k.(x - c)) + h(x)'w,   |k_d| <= m_d,   v ~ N(0, I),   D_k^2 = prod(h) S(h k)

with the spectral density S of a stationary kernel: the trapezoidal rule for its Fourier integral, and cas = cos + sin.
Products of two cas are sums of two such functions (`toeplitz`), so the cost of a message of n rows is one fast
transform, almost independent of the number of weights.

The features have the period 1/h, which exceeds the box of the rows by enough that rows at opposite sides are not
correlated. f has the kernel's covariance only inside the box, and rows outside are refused.

A discrete grid of frequencies adds the covariance of all other periods to the kernel: sum_{n != 0} k(lag - n / h).
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bcmdist.errors import InvalidData
from bcmdist.experts.expert import Linearised
from bcmdist.experts.laplace import log_joint
from bcmdist.experts.message import Message
from bcmdist.experts.residual import refuse_coupled_classes
from bcmdist.methods.fourier import messages, predictions
from bcmdist.methods.fourier.belief import MAX_FACTORED, PREDICTION_ROWS, IterativeBelief, iterative_belief
from bcmdist.methods.fourier.nufft import sums_over_rows, values_at_rows
from bcmdist.methods.fourier.precision import FeaturePrecision
from bcmdist.methods.fourier.predictions import FourierAtRows
from bcmdist.methods.fourier.toeplitz import Gram, cas_sums, exponential_weights, flipped
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.belief import Belief, Factored, factored
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import Positive, damaged, decode

# Covariances below this share of the variance are neglected.
NEGLIGIBLE = 1e-10
# Number of lags per block.
BLOCK_LAGS = 2**13


def aliased_covariance(kernel: Kernel, step, lags) -> np.ndarray:
    """Sum of the aliases at lags (N, D), for a frequency spacing `step` (D,): (N,)."""
    found, shifts = np.zeros(len(lags)), _significant_shifts(kernel, step, np.abs(lags).max(axis=0, initial=0.0))
    for a in range(0, len(lags) if len(shifts) else 0, BLOCK_LAGS):
        found[a : a + BLOCK_LAGS] = kernel.cross(lags[a : a + BLOCK_LAGS], shifts).sum(axis=1)
    return found


def _significant_shifts(kernel, step, most):
    """Shifts n / h, n != 0, that are correlated with lags up to `most` (D,) in either direction, (K, D)."""
    here, found, significant = np.zeros((1, len(step))), [np.zeros((0, len(step)))], np.ones(1, bool)
    while significant.any():
        ring = len(found)
        numbers = np.array(list(itertools.product(range(-ring, ring + 1), repeat=len(step))))
        shifts = numbers[np.abs(numbers).max(axis=1) == ring] / step
        nearest = np.maximum(np.abs(shifts) - most, 0.0)
        significant = kernel.cross(nearest, here)[:, 0] > NEGLIGIBLE * kernel.diagonal(here)
        found.append(shifts[significant])
    return np.vstack(found)


# Rows per block of a design.
BLOCK_ROWS = 1024
# Entries of a block of the design when solving for variances.
DESIGN_ENTRIES = 2**19


@dataclass(frozen=True)
class Fourier(Shared):
    """Weights of Fourier features and of the mean; made by `frequency_grid.fourier_features`."""

    kind: ClassVar[str] = "fourier"
    noun: ClassVar[str] = "Fourier weights"
    exhaustive: ClassVar[bool] = False
    advised: ClassVar[str] = "lower --tolerance"
    step: np.ndarray
    """h of each axis, in cycles per scaled unit, (D,)"""
    most: np.ndarray
    """m of each axis, (D,)"""
    low: np.ndarray
    """lower corner of the box, in scaled units, (D,)"""
    high: np.ndarray
    """upper corner, (D,)"""
    tolerance: float
    """largest difference between the covariance and the kernel in the box, in units of the kernel's variance"""
    kernel: Kernel
    mean: Mean
    residual: str = "waves"
    jitter: float = 0.0

    @property
    def inputs(self) -> int:
        return len(self.step)

    @property
    def functions(self) -> int:
        return int(np.prod(2 * self.most + 1))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of frequencies of each axis."""
        return tuple(int(2 * m + 1) for m in self.most)

    @property
    def message_length(self) -> int:
        """Length L of a message's precision: lags, border and corner, concatenated (`operator`)."""
        weights = self.mean.weights(self.inputs)
        return int(np.prod(4 * self.most + 1)) + weights * (self.functions + weights)

    @cached_property
    def scale(self) -> np.ndarray:
        """D, prior standard deviations of the feature weights, (B,)."""
        return np.sqrt(np.prod(self.step) * self.kernel.spectral_density(self._frequencies()))

    @cached_property
    def truncated_variance(self) -> float:
        """Variance of f at the truncated frequencies, the same everywhere; treated as independent noise of each row."""
        here = np.zeros((1, self.inputs))
        return max(float((self.kernel.diagonal(here) + self.residual_less_kernel(here))[0]), 0.0)

    def _frequencies(self):
        axes = [h * np.arange(-m, m + 1) for h, m in zip(self.step, self.most, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.inputs)

    # --- Rows ---

    def fill(self, X, V) -> None:
        phases = self.phases(X)
        for a in range(0, len(X), BLOCK_ROWS):
            some, product = slice(a, a + BLOCK_ROWS), np.ones((len(X[a : a + BLOCK_ROWS]), 1), complex)
            for phase, m in zip(phases, self.most, strict=True):
                axis = np.exp(1j * phase[some, None] * np.arange(-m, m + 1))
                product = (product[:, :, None] * axis[:, None, :]).reshape(len(product), -1)
            V[some] = (product.real + product.imag) * self.scale

    def phases(self, X) -> list[np.ndarray]:
        """2 pi h (x - c) for each axis at the rows of X (n, D), within [-pi, pi].

        Raises
        ------
        InvalidData
            A row is outside the box.
        """
        outside = (self.low > X) | (self.high < X)
        if outside.any():
            row, column = np.argwhere(outside)[0]
            raise InvalidData(
                f"fourier: expected inputs in the box that the model was made for, column {column} from "
                f"{self.low[column]:.4g} to {self.high[column]:.4g} in standard deviations from the training mean, got "
                f"{X[row, column]:.4g} ({int(outside.any(axis=1).sum())} such rows); leave them out (`info` shows the "
                "box in the units of the data), or fit to data that reach as far"
            )
        center = 0.5 * (self.low + self.high)
        return [np.ascontiguousarray(2.0 * np.pi * h * (x - c)) for h, x, c in zip(self.step, X.T, center, strict=True)]

    def message_sums(self, X, w, g) -> tuple[np.ndarray, np.ndarray]:
        """V'g for C processes, (C, S), and V'w V as the precision of a message (L,), for rows X (n, D).

        Parameters
        ----------
        w : (n,), g : (n, C)
        """
        phases, H = self.phases(X), self.mean.design(X)
        lags, first = self._two_sums(phases, w, g[:, 0], 2 * self.most)
        inner = tuple(slice(m, 3 * m + 1) for m in self.most)
        border = np.empty((self.functions, H.shape[1]))
        border[:, :1] = lags[inner].reshape(-1, 1) * H[:1, :1]  # the column of a constant, where there is a mean
        border[:, 1:] = self._column_sums(phases, w[:, None] * H[:, 1:])
        features = np.column_stack([first[inner].ravel(), self._column_sums(phases, g[:, 1:])])
        eta = np.vstack([self.scale[:, None] * features, H.T @ g]).T
        precision = [lags.ravel(), (self.scale[:, None] * border).ravel(), ((w * H.T) @ H).ravel()]
        return eta, np.concatenate(precision)

    def transposed_product(self, X, g) -> np.ndarray:
        """Return V'g for g (n, C), as (C, S)."""
        features = self._column_sums(self.phases(X), g)
        return np.vstack([self.scale[:, None] * features, self.mean.design(X).T @ g]).T

    def _column_sums(self, phases, strengths):
        """Sums of cas over rows for each column of strengths, (n, K) -> (B, K)."""
        found, K = np.empty((self.functions, strengths.shape[1])), strengths.shape[1]
        for k in range(0, K, 2):
            pair = self._two_sums(phases, strengths[:, k], strengths[:, min(k + 1, K - 1)], self.most)
            found[:, k : k + 2] = np.stack(pair, axis=-1).reshape(-1, 2)[:, : K - k]
        return found

    def _two_sums(self, phases, a, b, most):
        """Sums of cas over rows with real strengths a and b, one grid each, from a single complex transform."""
        both = sums_over_rows(phases, a + 1j * b, most)
        back = np.conj(flipped(both, self.inputs))
        return cas_sums(0.5 * (both + back)), cas_sums(-0.5j * (both - back))

    def design_product(self, X, v) -> np.ndarray:
        """Return V v' at rows of X (n, D) for v (K, S): (K, n). Each complex transform serves two rows of v."""
        B, odd = self.functions, len(v) % 2
        grids = exponential_weights((v[:, :B] * self.scale).reshape(-1, *self.shape), self.inputs)
        grids = np.concatenate([grids, np.zeros_like(grids[:1])]) if odd else grids
        pairs = values_at_rows(self.phases(X), grids[::2] + 1j * grids[1::2])
        found = np.stack([pairs.real, pairs.imag], axis=1).reshape(len(grids), len(X))[: len(v)]
        return found + v[:, B:] @ self.mean.design(X).T

    def residual_less_kernel(self, lags) -> np.ndarray:
        """cov(f, f' | v) minus the kernel, between rows that differ by lags (N, D): (N,).

            sum_{n != 0} k(lag - n / h) - sum_k D_k^2 cos(2 pi h k.lag)

        The truncated frequencies belong to the periodic covariance of these features, which differs from the kernel by
        its aliases; with the kernel itself the difference would not be a covariance.
        """
        weights = (self.scale**2).reshape(1, *self.shape).astype(complex)
        phases = [np.ascontiguousarray(2.0 * np.pi * h * lag) for h, lag in zip(self.step, lags.T, strict=True)]
        return aliased_covariance(self.kernel, self.step, lags) - values_at_rows(phases, weights)[0].real

    # --- Messages ---

    def expert_message(self, likelihood, X, obs, general) -> Message:
        refuse_coupled_classes(self.residual, likelihood)
        if len(X) == 0:
            return messages.zero_message(self, likelihood)
        return messages.expert_message(self, likelihood, X, obs)

    def conditional_message(self, likelihood, X, obs, mean, general) -> Linearised:
        f, prior_mean = messages.conditional_mode(self, likelihood, X, obs, mean)
        step = None if likelihood.log_concave else messages.step_message_at(self, likelihood, X, obs, f)
        message = messages.message_at(self, likelihood, X, obs, f)
        return Linearised(message, log_joint(obs, likelihood, f, prior_mean), step)

    def running_message(self, likelihood, X, obs, belief, general) -> Message:
        refuse_coupled_classes(self.residual, likelihood)
        return messages.running_message(self, likelihood, X, obs, belief)

    def zero_message(self, likelihood, general) -> Message:
        return messages.zero_message(self, likelihood)

    def operator(self, precision) -> FeaturePrecision:
        """Lambda = I + precision for the precision of a sum of messages, (L,)."""
        lags, B, P = tuple(int(4 * m + 1) for m in self.most), self.functions, self.mean.weights(self.inputs)
        features, border, corner = np.split(precision, [len(precision) - P * (B + P), len(precision) - P * P])
        return FeaturePrecision(Gram(features.reshape(lags)), self.scale, border.reshape(B, P), corner.reshape(P, P))

    def belief(self, eta, precision) -> Belief:
        operator = self.operator(precision)
        return factored(eta, operator.without_prior()) if self.size <= MAX_FACTORED else iterative_belief(eta, operator)

    # --- Predictions ---

    def predict_latent(self, belief, X, general) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(belief, Factored):
            return general(self, belief, X)
        starts = range(0, max(len(X), 1), PREDICTION_ROWS)
        mean, variance = zip(*(self.moments(belief, X[a : a + PREDICTION_ROWS]) for a in starts), strict=True)
        return np.concatenate(mean), self.truncated_variance + np.concatenate(variance)

    def moments(self, belief: IterativeBelief, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of b(x)'v at the rows of X (n, D), (n,) each, or (n, C) for C processes."""
        means = belief.mean.reshape(-1, self.size)
        mean, variance = self.design_product(X, means).T, np.empty(len(X))
        step = max(1, DESIGN_ENTRIES // self.size)
        for a in range(0, len(X), step):
            variance[a : a + step] = belief.variances(self.design(X[a : a + step]))
        if belief.mean.ndim == 1:
            return mean[:, 0], variance
        return mean, np.repeat(variance[:, None], len(means), axis=1)

    def predict_draws(self, predictor, X) -> tuple[np.ndarray, np.ndarray]:
        return predictions.predict_draws(self, predictor, X)

    def leave_one_out(self, likelihood, X, obs, belief, rows, copies, at, general) -> tuple[np.ndarray, np.ndarray]:
        return predictions.leave_one_out(self, likelihood, X, obs, belief, rows, copies, at)

    def degrees_share(self, likelihood, X, obs, belief, general) -> float:
        return predictions.degrees_share(self, likelihood, X, obs, belief)

    def committee_at_rows(self, belief, general) -> FourierAtRows:
        return FourierAtRows(self, belief)

    def summary(self, belief, original) -> dict[str, dict]:
        """Number of frequencies of each axis, the box, and the numerical error of the belief."""
        facts = {
            "waves": list(self.shape),
            "tolerance": self.tolerance,
            "box": original(np.array([self.low, self.high])).tolist(),
            "message_bytes": 8 * (self.message_length + self.size),
        }
        return {"waves": facts | belief.accuracy}

    # --- Storage ---

    def to_arrays(self) -> tuple[Arrays, dict]:
        grid = {"step": self.step, "most": self.most, "low": self.low, "high": self.high}
        return {f"fourier_{name}": array for name, array in grid.items()}, {"tolerance": self.tolerance}

    @classmethod
    def from_arrays(cls, arrays, facts, kernel, mean, residual) -> "Fourier":
        grid = {name: arrays[f"fourier_{name}"] for name in ("step", "most", "low", "high")}
        return cls(**grid, tolerance=facts["tolerance"], kernel=kernel, mean=mean, residual=residual)

    @classmethod
    def check_arrays(cls, arrays, facts, inputs, where) -> None:
        decode(Positive, facts.get("tolerance"), where, "tolerance")
        require_arrays(arrays, ("fourier_step", "fourier_most", "fourier_low", "fourier_high"), where)
        check_array(arrays["fourier_step"], where, "fourier_step", shape=(inputs,), positive=True)
        check_array(arrays["fourier_most"], where, "fourier_most", shape=(inputs,), dtype=np.int64, positive=True)
        for name in ("fourier_low", "fourier_high"):
            check_array(arrays[name], where, name, shape=(inputs,))

    def check(self, where) -> None:
        extent = self.high - self.low
        if not (np.all(extent >= 0) and np.all(self.step * extent < 1.0)):
            raise damaged(where, "waves longer than the box in fourier_step", f"{self.step * extent} of them in it")
        total = np.sum(self.scale**2)
        variance = self.kernel.diagonal(np.zeros((1, self.inputs)))[0]
        if not abs(total - variance) <= self.tolerance * variance:
            raise damaged(where, f"waves with the variance {variance:g} of the kernel in fourier_most", f"{total:g}")
