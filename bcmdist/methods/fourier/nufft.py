"""Nonuniform fast Fourier transforms by finufft (Barnett, Magland & af Klinteberg 2019).

The only module that imports finufft. Transforms use one thread each, because workers run as many tasks as they have
threads. No plan is kept between calls.
"""

from collections.abc import Sequence

import numpy as np

from bcmdist.errors import MissingExtra

# Error of a transform relative to its largest values.
TOLERANCE = 1e-12


def sums_over_rows(phases: Sequence[np.ndarray], strengths, most) -> np.ndarray:
    """Sums over rows of strengths times exp(-i k.phase), for |k_d| <= most_d.

    Parameters
    ----------
    phases : for each axis (n,), within [-pi, pi]
    strengths : (n,) or (K, n), complex
    most : (D,)

    Returns
    -------
    (2 most_1 + 1, ...) or (K, 2 most_1 + 1, ...), complex, from -most to most
    """
    modes = tuple(int(2 * m + 1) for m in most)
    kind = getattr(_finufft(), f"nufft{len(modes)}d1")
    return kind(*phases, strengths, modes, eps=TOLERANCE, isign=-1, nthreads=1)


def values_at_rows(phases: Sequence[np.ndarray], weights) -> np.ndarray:
    """Sums over k of weights times exp(i k.phase) at rows: (K, 2 most_1 + 1, ...) complex -> (K, n) complex."""
    kind = getattr(_finufft(), f"nufft{len(phases)}d2")
    return kind(*phases, weights, eps=TOLERANCE, isign=1, nthreads=1).reshape(len(weights), -1)


def require_finufft() -> None:
    """Raise `MissingExtra` where finufft is not installed."""
    _finufft()


def _finufft():
    try:
        import finufft  # optional
    except ImportError as error:
        raise MissingExtra(
            "expert fourier: expected the package finufft, found none; pip install 'bcmdist[fourier]', on workers too"
        ) from error
    return finufft
