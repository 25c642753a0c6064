"""The error function on a grid against that of scipy."""

import numpy as np
from scipy.special import erf

from bcmdist.methods.networks.error_function import BLOCK, DENSITY, error_function

ROUNDING = 2e-15  # of values up to 1, after a few operations


def test_it_is_the_error_function(rng):
    a = 2.0 * rng.standard_normal((3, BLOCK))  # not all within one block
    np.testing.assert_allclose(error_function(a, np.empty_like(a)), erf(a), atol=ROUNDING, rtol=0)
    expected = erf(a)
    assert error_function(a, a) is a
    np.testing.assert_allclose(a, expected, atol=ROUNDING, rtol=0)


def test_it_holds_between_points_and_beyond_the_grid():
    between = (np.arange(-7 * DENSITY, 7 * DENSITY) + 0.5) / DENSITY  # where the polynomial is worst
    ends = np.array([0.0, -0.0, 5.9999, 6.0, 6.1, 1e300, np.inf])
    for a in (between, between - 0.5 / DENSITY, ends, -ends):
        np.testing.assert_allclose(error_function(a, np.empty_like(a)), erf(a), atol=ROUNDING, rtol=0)
    assert np.isnan(error_function(np.array([np.nan]), np.empty(1)))[0]


def test_small_numbers_keep_their_digits():
    a = np.array([1e-300, 1e-20, -1e-5, 1e-4])
    np.testing.assert_allclose(error_function(a, np.empty_like(a)), erf(a), rtol=1e-14)
