"""Inputs that a kernel uses as labels."""

import numpy as np

from bcmdist.learning.category_lengthscales import unordered_values
from bcmdist.model.kernels import parse_kernel


def kernel(name, lengthscale):
    found = parse_kernel(name, inputs=3)
    return found.with_parameters({n: np.array(lengthscale) for n in found.lengthscales})


def test_few_values_at_the_lower_bound_are_labels(rng):
    sample = np.column_stack([rng.standard_normal(2000), rng.integers(0, 200, 2000), rng.integers(0, 2, 2000)])
    assert unordered_values(sample, kernel("matern32", [1.0, 0.01, 1.0])) == {1: 200}
    assert unordered_values(sample, kernel("se+linear", [1.0, 0.01, 1.0])) == {1: 200}
    assert unordered_values(sample, kernel("matern32", [1.0, 0.02, 1.0])) == {}
    assert unordered_values(sample, kernel("matern32", [1.0, 1e3, 1.0])) == {}
    # of many values each is one of a rough function; of two any lengthscale makes labels
    assert unordered_values(sample, kernel("matern32", [0.01, 1.0, 0.01])) == {}


def test_one_lengthscale_for_all_says_nothing_of_one(rng):
    sample = rng.integers(0, 20, (500, 3)).astype(float)
    one = parse_kernel("se-iso", inputs=3).with_parameters({"lengthscale": np.array([0.01])})
    assert unordered_values(sample, one) == {}
