"""The error function by its values and slopes on a grid, in less than half the time of `scipy.special.erf`.

At the nearest point x of the grid and d = a - x, |d| <= 1 / 4096, the error of the Taylor polynomial

    erf(x + d) ~ erf(x) + erf'(x) (d - x d^2 + (2 x^2 - 1) / 3 d^3)

is below the rounding of erf(x), 1e-15. Beyond the grid erf is 1 up to rounding.
"""

import numpy as np
from scipy.special import erf

DENSITY, END = 2048, 6  # points per unit; last point
ROUND = 1.5 * 2.0**52  # added to a number, it leaves the nearest integer in the lowest bits
LEAST_BITS = 2**20 - 1
BLOCK = 2**14  # numbers whose temporaries fit into a cache

_points = np.arange(-END * DENSITY, END * DENSITY + 1) / DENSITY
_values, _slopes = erf(_points), 2.0 / np.sqrt(np.pi) * np.exp(-(_points**2))


def error_function(a, out) -> np.ndarray:
    """erf of the numbers a, stored in `out`, which may be a; both C-ordered and of the same shape."""
    flat, found = a.reshape(-1), out.reshape(-1)
    for start in range(0, len(flat), BLOCK):
        found[start : start + BLOCK] = _of_block(flat[start : start + BLOCK])
    return out


def _of_block(a):
    d = np.clip(a, -END, END)
    x = d * DENSITY
    x += ROUND + END * DENSITY
    nearest = x.view(np.int64) & LEAST_BITS
    x -= ROUND + END * DENSITY
    x /= DENSITY
    d -= x
    x *= d
    # 1 - x d + 2/3 (x d)^2 - d^2 / 3
    found = x * (2.0 / 3.0)
    found -= 1.0
    found *= x
    found += 1.0
    np.square(d, out=x)
    x /= 3.0
    found -= x
    found *= d
    found *= _slopes.take(nearest, out=x, mode="clip")
    found += _values.take(nearest, out=x, mode="clip")
    return found
