"""Leave-one-out identities against computations without the row."""

import numpy as np

from bcmdist.experts.leave_one_out import cavity, downdated, from_precision
from bcmdist.model.shared.belief import Factored


def a_covariance(rng, n):
    A = rng.standard_normal((n, n))
    return A @ A.T + np.eye(n)


def test_rows_of_a_joint_normal_are_predicted_from_the_others(rng):
    C, y = a_covariance(rng, 8), rng.standard_normal((8, 2))
    T = np.linalg.inv(C)
    error, variance = from_precision(T @ y, np.diag(T)[:, None])
    for i in range(8):
        others = np.arange(8) != i
        weights = np.linalg.solve(C[np.ix_(others, others)], C[others, i])
        np.testing.assert_allclose(error[i], y[i] - weights @ y[others], rtol=1e-10)  # rounding of an inverse
        np.testing.assert_allclose(variance[i], C[i, i] - weights @ C[others, i], rtol=1e-10)


def test_a_posterior_without_a_site_is_the_product_of_the_others():
    prior, sites = (0.3, 2.0), [(1.0, 0.5), (-2.0, 0.1), (0.7, 3.0)]  # mean and variance each

    def product(factors):
        precision = sum(1.0 / v for _, v in factors)
        return sum(m / v for m, v in factors) / precision, 1.0 / precision

    mean, variance = product([prior, *sites])
    for k, (target, noise) in enumerate(sites):
        found = cavity(mean, variance, (target - mean) / noise, 1.0 / noise)
        np.testing.assert_allclose(found, product([prior, *sites[:k], *sites[k + 1 :]]), rtol=1e-13)


def test_a_belief_without_a_row_is_that_of_the_natural_parameters_without_it(rng):
    S, k = 6, 4
    U, V, pull, share = rng.standard_normal((k, S)), rng.standard_normal((k, S)), rng.standard_normal(k), np.ones(k)
    precision, eta = a_covariance(rng, S) + U.T @ U, rng.standard_normal(S)
    belief = Factored(np.linalg.solve(precision, eta), np.linalg.cholesky(precision))
    mean, variance = downdated(belief, V, U, pull, share)
    for i in range(k):
        less = precision - np.outer(U[i], U[i])
        target = U[i] @ belief.mean + pull[i]
        np.testing.assert_allclose(mean[i], V[i] @ np.linalg.solve(less, eta - U[i] * target), rtol=1e-9)
        np.testing.assert_allclose(variance[i], V[i] @ np.linalg.solve(less, V[i]), rtol=1e-9)
