"""Joint local predictions: against dense matrices by inverses, against `predict`, and across the borders of cells."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.linalg import inv

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.errors import InvalidOption, MemoryLimit
from bcmdist.experts.expert import expert_message, find_mode
from bcmdist.experts.message import zero_message
from bcmdist.model.likelihoods import Gaussian, Poisson
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.in_memory import joint_predictor
from bcmdist.prediction.local import joint_moments as moments
from bcmdist.prediction.local import samples
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from bcmdist.prediction.local.joint_moments import Sums, each_point, joint_moments
from oracles import full_gp
from problems import CELLS, make_kernel, regression_problem, wiggly

NOISE = Gaussian(np.array([0.05]))


@pytest.fixture
def three_cells(rng):
    """Rows of three cells with common rows, the points of each, and a fourth without rows, of two likelihoods."""
    p = regression_problem(rng)
    rows = [np.arange(0, 30), np.arange(15, 45), np.r_[5:10, 40:60]]
    points = [np.array([0, 4, 7]), np.array([1, 2, 9, 10]), np.array([3, 5]), np.array([6, 8])]
    return p, rows, points


def fitted(p, likelihood, rows, points):
    """`CommitteeAtRows` at jitter 0, and the points with the experts of the cells."""
    query = prepare(p.Xq, kernel=make_kernel("matern32"), mean=Mean("constant"), jitters=(0.0,))
    message = expert_message(query, likelihood, p.X, p.obs) + zero_message(query, likelihood)
    seen = committee_at_rows(query, Committee(message).posterior)
    experts = [replace(local_expert(seen, likelihood, p.X[r], seen.columns(p.X[r]), p.obs[r]), rows=r) for r in rows]
    return seen, list(zip(points, [*experts, None], strict=True))


def errors_of(seen, p, rows, points, noises):
    """Covariance of f at all points, from one large matrix of the errors of kriging in each cell.

    noises : variances of the noise in each cell
    """
    query, belief = seen.shared, seen.belief
    Q, V, B = len(query.points), query.design(p.X), query.design(p.Xs)
    everywhere, D = np.vstack([p.Xs, p.X]), np.vstack([B, V])[:, :Q]
    Lam, n = query.kernel.cross(everywhere, everywhere) - D @ D.T, len(p.Xs)
    G, N, A = np.zeros((n, 60)), np.zeros((n, 60)), B.copy()
    for some, r, noise in zip(points, rows, noises, strict=False):
        T = inv(Lam[np.ix_(n + r, n + r)] + np.diag(noise))
        G[np.ix_(some, r)] = Lam[np.ix_(some, n + r)] @ T
        N[np.ix_(some, r)] = G[np.ix_(some, r)] * np.sqrt(noise)
        A[some] -= G[some] @ V
    H = np.hstack([np.eye(n), -G])
    return H @ Lam @ H.T + N @ N.T + A @ inv(belief.factor @ belief.factor.T) @ A.T


def test_the_covariance_is_that_of_the_errors_of_kriging(three_cells):
    p, rows, points = three_cells
    seen, in_cells = fitted(p, NOISE, rows, points)
    mean, covariance = joint_moments(seen, in_cells, p.Xs, each_point(11))
    noises = [NOISE.noise(p.obs[r]) * np.ones(len(r)) for r in rows]
    np.testing.assert_allclose(covariance, errors_of(seen, p, rows, points, noises), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10
    for some, expert in in_cells[:3]:
        found = predict_local(seen, expert, p.Xs[some], seen.columns(p.Xs[some]))
        np.testing.assert_allclose([mean[some], np.diag(covariance)[some]], found, rtol=0, atol=1e-10)


def test_other_likelihoods_have_the_noise_of_their_linearisation(three_cells, rng):
    p, rows, points = three_cells
    p = replace(p, obs=Observations(rng.poisson(np.exp(p.obs.y)) * 1.0, np.ones(60)))
    seen, in_cells = fitted(p, Poisson(), rows, points)
    noises = []
    for r in rows:
        V = seen.columns(p.X[r])
        Lam = seen.shared.kernel.cross(p.X[r], p.X[r]) - V[:, :9] @ V[:, :9].T
        f = find_mode(np.asfortranarray(Lam), p.obs[r], Poisson(), seen.mean(V))
        noises.append(1.0 / Poisson().curvature(p.obs[r], f))
    _, covariance = joint_moments(seen, in_cells, p.Xs, each_point(11))
    np.testing.assert_allclose(covariance, errors_of(seen, p, rows, points, noises), rtol=0, atol=1e-8)


@pytest.mark.parametrize("entries", [1, 40, 10**6])
def test_sums_are_sums_of_the_joint_moments(three_cells, rng, monkeypatch, entries):
    """However many covariances are in memory at a time."""
    p, rows, points = three_cells
    seen, in_cells = fitted(p, NOISE, rows, points)
    mean, covariance = joint_moments(seen, in_cells, p.Xs, each_point(11))
    sums = Sums(rng.integers(0, 3, 11), rng.standard_normal(11), 4)
    W = np.zeros((11, 4))
    W[np.arange(11), sums.number] = sums.weight
    monkeypatch.setattr(moments, "TILE_ENTRIES", entries)
    m, c = joint_moments(seen, in_cells, p.Xs, sums)
    np.testing.assert_allclose(m, W.T @ mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(c, W.T @ covariance @ W, rtol=0, atol=1e-12)


def test_one_cell_with_all_rows_is_the_exact_gp(three_cells):
    p, _, _ = three_cells
    seen, in_cells = fitted(p, NOISE, [np.arange(60)], [np.arange(11), np.arange(0)])
    exact = full_gp(seen.shared.kernel, Mean("constant").design, p.X, p.obs.y, NOISE.noise(p.obs), p.Xs)
    mean, covariance = joint_moments(seen, in_cells, p.Xs, each_point(11))
    np.testing.assert_allclose(mean, exact[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(covariance, exact[1], rtol=0, atol=1e-10)
    average = joint_moments(seen, in_cells, p.Xs, Sums(np.zeros(11, int), np.full(11, 1 / 11), 1))
    np.testing.assert_allclose(average[0], exact[0].mean(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(average[1], exact[1].mean(), rtol=0, atol=1e-10)


@pytest.fixture
def wiggle(make_data, rng):
    X = rng.uniform(-2, 2, (700, 2))
    return GBCM.fit(make_data("w.zarr", rows_per_chunk=128, X=X, y=wiggly(X) + 0.05 * rng.standard_normal(700)), CELLS)


def test_marginals_are_those_of_predict(wiggle, rng):
    X = rng.uniform(-2.1, 2.1, (150, 2))
    found, (mean, covariance) = wiggle.predict(X), wiggle.predict_joint(X)
    np.testing.assert_allclose(mean, found["mean"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.diag(covariance), found["variance"], rtol=0, atol=1e-10)
    found, (mean, covariance) = wiggle.predict(X, method="committee"), wiggle.predict_joint(X, method="committee")
    np.testing.assert_allclose(np.diag(covariance), found["variance"], rtol=0, atol=1e-10)
    some = rng.permutation(150)[:40]
    np.testing.assert_allclose(
        wiggle.predict_joint(X[some])[1], wiggle.predict_joint(X)[1][np.ix_(some, some)], rtol=0, atol=1e-10
    )


def close_pairs(gbcm, rng, distance):
    """Points (k, D) in pairs this close, (2, k, D), on both sides of borders of cells."""
    X = rng.uniform(-1.8, 1.8, (100_000, 2))
    angles = rng.uniform(0, 2 * np.pi, len(X))
    Y = X + distance * np.column_stack([np.cos(angles), np.sin(angles)])
    cells = [gbcm.model.cells.route(gbcm.model.scaling.inputs(one)) for one in (X, Y)]
    across = np.flatnonzero(cells[0] != cells[1])[:60]
    assert len(across) == 60
    return np.stack([X[across], Y[across]])


def test_close_points_on_both_sides_of_a_border_are_close(wiggle, rng):
    pairs = close_pairs(wiggle, rng, 1e-3)
    _, C = wiggle.predict_joint(pairs.reshape(-1, 2))
    variance, k = np.diag(C), pairs.shape[1]
    difference = variance[:k] + variance[k:] - 2.0 * C[np.arange(k), np.arange(k, 2 * k)]
    assert np.all(difference <= 0.05 * variance[:k])
    inside = pairs[0][None] + np.array([0.0, 1e-3])[:, None, None]
    _, C = wiggle.predict_joint(inside.reshape(-1, 2))
    assert np.median(difference) <= 5 * np.median(np.diag(C)[:k] + np.diag(C)[k:] - 2 * np.diag(C, k))


@pytest.mark.parametrize("few", [True, False], ids=["by covariance", "by random functions"])
def test_samples_have_the_joint_moments(wiggle, rng, monkeypatch, few):
    pairs = close_pairs(wiggle, rng, 0.02)[:, :20]
    X, size = pairs.reshape(-1, 2), 3000
    if not few:
        monkeypatch.setattr(samples, "FEW_POINTS", 0)
        monkeypatch.setattr(samples, "COSINES", 64)  # covariances are exact for any number
    mean, covariance = wiggle.predict_joint(X)
    found = wiggle.sample(X, size=size, seed=3)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs((found.mean(axis=0) - mean) / sd).max() < 5.0 / np.sqrt(size)
    deviation = (np.cov(found.T) - covariance) / np.outer(sd, sd)
    correlation = covariance / np.outer(sd, sd)
    assert np.abs(deviation / np.sqrt((1.0 + correlation**2) / size)).max() < 6.0
    np.testing.assert_array_equal(found, wiggle.sample(X, size=size, seed=3))


def test_rows_that_were_forgotten_do_not_count(wiggle, rng):
    X = rng.uniform(-2, 2, (30, 2))
    less = wiggle.forget([wiggle.ledger[0].key])
    _, covariance = less.predict_joint(X)
    np.testing.assert_allclose(np.diag(covariance), less.predict(X)["variance"], rtol=0, atol=1e-10)
    assert np.trace(covariance) > np.trace(wiggle.predict_joint(X)[1])


def test_a_kernel_without_random_functions_is_sampled_by_its_covariance(make_data, rng, monkeypatch):
    X = rng.uniform(-1, 1, (200, 1))
    settings = Settings(kernel="poly2", learn=False, query=3, rows_per_expert=100)
    gbcm = GBCM.fit(make_data("p.zarr", rows_per_chunk=100, X=X, y=X[:, 0] ** 2), settings)
    monkeypatch.setattr(samples, "FEW_POINTS", 0)
    assert gbcm.sample(X, size=2).shape == (2, 200)
    snapshot = gbcm.snapshot
    from bcmdist.prediction import in_memory

    with pytest.raises(MemoryLimit, match=r"joint prediction of 100000 rows, 2 samples"):
        in_memory.sample(snapshot, np.zeros((100_000, 1)), size=2, seed=0, allowed_bytes=1e9)


def test_a_method_without_cells_is_refused(make_data, rng):
    X = rng.uniform(-1, 1, (200, 1))
    gbcm = GBCM.fit(
        make_data("p.zarr", X=X, y=X[:, 0]), Settings(kernel="se", learn=False, query=5, partition="chunks")
    )
    assert type(joint_predictor(gbcm.snapshot, None)).__name__ == "Fitted"
    with pytest.raises(InvalidOption, match=r"spatial"):
        gbcm.predict_joint(X, method="local")
