"""Gram matrices of Fourier features on a grid of frequencies: stored by lags, multiplied by FFT.

The functions are cas(k.t) = cos(k.t) + sin(k.t) of phases t, |k_d| <= m_d. They are real, as many as the complex
exponentials, and give the same covariance where the weights of k and -k have equal variances, because the mixed terms
of cos and sin cancel in the sum over both. From cas a cas b = cos(a - b) + sin(a + b) it follows for rows with weights
w that

    G_jk = sum w cas(j.t) cas(k.t) = C_{j-k} + S_{j+k},     C_l, S_l = (H_l +- H_{-l}) / 2,     H_l = sum w cas(l.t)

(C is the Toeplitz part, S the Hankel part), so the sums H_l at the lags |l_d| <= 2 m_d determine G.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import fft


def cas_sums(sums) -> np.ndarray:
    """Sums of cas(k.t) with real strengths, from the complex sums of exp(-i k.t)."""
    return sums.real - sums.imag


def flipped(grid, axes) -> np.ndarray:
    """Grid with the values at k and -k exchanged, over the last `axes` axes."""
    return np.flip(grid, tuple(range(-axes, 0)))


def exponential_weights(weights, axes) -> np.ndarray:
    """Weights c_k of exp(i k.t) equivalent to real weights of cas(k.t), over the last `axes` axes."""
    return 0.5 * ((1.0 - 1.0j) * weights + (1.0 + 1.0j) * flipped(weights, axes))


@dataclass(frozen=True)
class Gram:
    """G (S, S) of some rows; symmetric, positive semi-definite up to rounding."""

    lags: np.ndarray
    """H, (4 m_1 + 1, ...)"""

    @property
    def shape(self) -> tuple[int, ...]:
        """Size 2 m_d + 1 of the frequency grid along each axis d, where m_d is the largest frequency."""
        return tuple((n + 1) // 2 for n in self.lags.shape)

    @cached_property
    def _padded(self):
        return tuple(fft.next_fast_len(n, real=True) for n in self.lags.shape)

    @cached_property
    def _symbol(self):
        """sum_l t_l exp(i l.p), t = C - i S, at the points p of the padded grid: about the row weights there."""
        axes = self.lags.ndim
        complex_lags = 0.5 * ((1.0 - 1.0j) * self.lags + (1.0 + 1.0j) * flipped(self.lags, axes))
        return self._on_grid(complex_lags) * np.prod(self._padded)

    def _on_grid(self, values):
        """Real values on the padded grid, divided by its size, from weights (..., <= 4 m_1 + 1, ...) of exp(i k.t)."""
        axes = self.lags.ndim
        shape = values.shape[-axes:]
        half = np.zeros((*values.shape[:-axes], *self._padded[:-1], self._padded[-1] // 2 + 1), values.dtype)
        half[(..., *self._places(shape))] = values[..., shape[-1] // 2 :]
        return fft.irfftn(half, s=self._padded, axes=tuple(range(-axes, 0)), overwrite_x=True)

    def _places(self, shape):
        """Indices of frequencies -m to m on the padded grid; only 0 to m for the last axis."""
        first = [(np.arange(n) - n // 2) % size for n, size in zip(shape[:-1], self._padded, strict=False)]
        return np.ix_(*first, np.arange(shape[-1] // 2 + 1))

    def __matmul__(self, v):
        """Return G v for v (..., S), each a grid in C order."""
        axes, shape = self.lags.ndim, self.shape
        v = v.reshape(*v.shape[:-1], *shape)
        values = self._on_grid(exponential_weights(v, axes))
        values *= self._symbol
        found = fft.rfftn(values, axes=tuple(range(-axes, 0)), overwrite_x=True)
        half = found[(..., *self._places(shape))]
        m, out = shape[-1] // 2, np.empty_like(v)
        out[..., m:] = half.real - half.imag
        out[..., :m] = flipped(half.real + half.imag, axes)[..., :m]
        return out.reshape(*v.shape[:-axes], -1)

    def slab(self, first) -> np.ndarray:
        """Rows of G whose frequency along the first axis has index `first`, all columns: (b, S)."""
        C, S = (sliding_window_view(one[first : first + self.shape[0]], self.shape)[0] for one in self._parts)
        return (flipped(C, self.lags.ndim) + S).reshape(-1, int(np.prod(self.shape)))

    def block(self, some) -> np.ndarray:
        """Rows and columns of G at some frequency indices (b,), (b, b)."""
        k = np.array(np.unravel_index(some, self.shape)) - (np.array(self.shape) // 2)[:, None]  # (D, b)
        differences, sums = (self._numbers(k[:, :, None] + sign * k[:, None, :]) for sign in (-1, 1))
        C, S = self._parts
        found = C.ravel()[differences]
        found += S.ravel()[sums]
        return np.asfortranarray(found)

    def diagonal(self) -> np.ndarray:
        """Diagonal of G, (S,)."""
        C, S = self._parts
        return (C[tuple(n // 2 for n in C.shape)] + S[(slice(None, None, 2),) * S.ndim]).ravel()

    @cached_property
    def _parts(self):
        back = flipped(self.lags, self.lags.ndim)
        return 0.5 * (self.lags + back), 0.5 * (self.lags - back)

    def _numbers(self, lag):
        """Indices, in C order, of lags (D, ...)."""
        middle = np.array(self.lags.shape) // 2
        return np.ravel_multi_index(tuple(one + m for one, m in zip(lag, middle, strict=True)), self.lags.shape)
