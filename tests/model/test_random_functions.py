"""Random functions of kernels: their covariance over draws is the kernel."""

import numpy as np
import pytest

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import parse_kernel

EXPRESSIONS = ["se", "matern12", "matern32", "matern52", "rq", "se-iso", "se*matern32", "matern12+linear+constant"]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, "se(0)*matern32(1)+constant*se(1)"])
def test_their_covariance_is_the_kernel(rng, expression):
    kernel = parse_kernel(expression, inputs=2)
    X = rng.standard_normal((6, 2))
    drawn = np.array([kernel.random_function(rng, 16, 2)(X) for _ in range(6000)])
    K = kernel.cross(X, X)
    sd = np.sqrt(np.diag(K))
    error = np.sqrt((1.0 + (K / np.outer(sd, sd)) ** 2) / 6000)
    assert np.abs((drawn.T @ drawn / 6000 - K) / np.outer(sd, sd) / error).max() < 5.0
    assert np.abs(drawn.mean(axis=0) / sd).max() < 5.0 / np.sqrt(6000)


def test_a_kernel_that_is_not_stationary_has_none(rng):
    with pytest.raises(InvalidOption, match=r"kernel: expected one with random frequencies .*got poly2"):
        parse_kernel("poly2", inputs=2).random_function(rng, 4, 2)
