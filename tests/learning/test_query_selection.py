"""Choosing query points: each method against a plain computation, and the automatic number against the exact one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import lapack
from scipy.stats import multivariate_normal

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import InvalidOption
from bcmdist.learning.greedy import greedy_evidence, greedy_posterior
from bcmdist.learning.query_selection import (
    LEAST_QUERY,
    MOST_QUERY,
    QUERY_METHODS,
    STOPPING,
    automatic_count,
    estimated_degrees,
    select_points,
    working_targets,
)
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Bernoulli, Gaussian, OneHot, Poisson, Softmax
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.runtime import memory
from problems import make_kernel

# Methods that choose as many points as they are asked for, where rows do not determine each other.
COUNTED = [method for method in QUERY_METHODS if method not in STOPPING]


def targets_of(sample, rng=None):
    """Targets (n, 1) that vary with the first input, and their noise (n,)."""
    y = np.sin(2 * sample[:, :1])
    return y if rng is None else y + 0.1 * rng.standard_normal(y.shape), np.full(len(sample), 0.01)


# --- Laws of every method ---


@pytest.mark.parametrize("method", COUNTED)
def test_points_are_spread_distinct_and_repeatable(rng, method):
    sample = rng.standard_normal((500, 2))
    targets, noise = targets_of(sample)
    given = {"kernel": make_kernel("matern32"), "method": method, "targets": targets, "noise": noise, "seed": 3}
    points = select_points(sample, 40, **given)
    assert points.shape == (40, 2)
    np.testing.assert_array_equal(points, select_points(sample, 40, **given))
    assert len(np.unique(points, axis=0)) == 40


@pytest.mark.parametrize("method", COUNTED)
def test_duplicates_are_dropped_and_jitter_stays_zero(rng, method):
    """Asked for more points than there are, a method gives the distinct rows."""
    sample = rng.standard_normal((30, 2))
    near = sample + 1e-9 * rng.standard_normal((30, 2))
    rows, kernel = np.vstack([sample, near, sample]), make_kernel("se")
    targets, noise = targets_of(rows)
    points = select_points(rows, 100, kernel=kernel, method=method, targets=targets, noise=noise)
    assert len(points) == 30
    assert {tuple(p) for p in points.round(6)} == {tuple(p) for p in sample.round(6)}
    assert prepare(points, kernel=kernel, mean=Mean("zero")).jitter == 0.0


def test_points_follow_the_lengthscales(rng):
    """Inputs with a long lengthscale do not matter, so centres do not spread along them."""
    sample = rng.standard_normal((2000, 2))
    kernel = parse_kernel("se", inputs=2)
    kernel = kernel.with_parameters({"variance": np.ones(1), "lengthscale": np.array([0.3, 30.0])})
    spread = select_points(sample, 20, kernel=kernel).std(axis=0)
    assert spread[0] > 5 * spread[1]


def test_what_a_method_lacks_is_named(rng):
    sample, kernel = rng.standard_normal((5, 1)), make_kernel("se", inputs=1)
    with pytest.raises(InvalidOption, match=r"expected one of kmeans, random, pivoted, evidence, sggp, .*, got 'grid'"):
        select_points(sample, 2, kernel=kernel, method="grid")
    with pytest.raises(InvalidOption, match="evidence: expected targets and their noise, got none; give them, or"):
        select_points(sample, 2, kernel=kernel, method="evidence")
    with pytest.raises(InvalidOption, match="query_method: expected kmeans or pivoted with negative_binomial, got evi"):
        Settings(task="counts", query_method="evidence")
    with pytest.raises(InvalidOption, match="expected a positive variance at some rows"):
        select_points(np.zeros((5, 1)), 2, kernel=parse_kernel("linear", inputs=1), method="pivoted")


# --- Pivoted Cholesky ---


@pytest.mark.parametrize("name", ["matern32", "se+linear"])
def test_pivoted_takes_the_pivots_of_lapack(rng, name):
    """Rows of one variance tie at the first pivot; a linear part breaks the tie."""
    sample, kernel = rng.standard_normal((60, 2)), make_kernel(name)
    _, pivots, _, _ = lapack.dpstrf(kernel.cross(sample, sample), lower=1)
    points = select_points(sample, 12, kernel=kernel, method="pivoted")
    assert {tuple(p) for p in points} == {tuple(p) for p in sample[pivots[:12] - 1]}


@pytest.mark.parametrize("method", COUNTED)
def test_a_single_point_is_one_where_the_prior_varies(method):
    """A linear kernel has no variance at the centre of rows, where k-means puts a single point."""
    sample = np.array([[-1.5], [-0.5], [0.5], [1.5]])
    y, noise = np.ones((4, 1)), np.ones(4)
    points = select_points(sample, 1, kernel=make_kernel("linear"), method=method, targets=y, noise=noise, rows=4)
    assert len(points) == 1
    assert points[0] in sample


def test_a_fit_of_a_linear_kernel_with_one_query_point(rng):
    X = np.arange(4.0)[:, None]
    found = GBCM.fit(X, 2.0 * X[:, 0] + 1.0, Settings(kernel="linear", query=1, partition="chunks", effort="quick"))
    np.testing.assert_allclose(found.predict([[1.5]])["mean"], [4.0], atol=0.1)


def test_pivoted_stops_where_nothing_is_left(rng):
    """A polynomial of degree 2 in 2 inputs has 6 basis functions."""
    points = select_points(rng.standard_normal((300, 2)), 50, kernel=make_kernel("poly2"), method="pivoted")
    assert len(points) == 6


def test_pivoted_never_forms_the_covariance(rng):
    """50,000 rows: their covariance would have 20 GB."""
    points = select_points(rng.standard_normal((50_000, 3)), 100, kernel=make_kernel("matern32", 3), method="pivoted")
    assert len(points) == 100


# --- Evidence ---


@pytest.mark.parametrize("classes", [1, 3])
def test_evidence_gains_add_up_to_the_dense_evidence(rng, classes):
    """At every step, with a noise of its own for each row."""
    sample, kernel = rng.standard_normal((80, 2)), make_kernel("matern32")
    targets, noise = rng.standard_normal((80, classes)), rng.uniform(0.05, 0.2, 80)
    rows, gains = greedy_evidence(sample, targets, 10, kernel, noise, 0)
    assert len(rows) == len(gains) == 10

    def evidence(chosen):
        Kq = kernel.cross(sample, sample[chosen])
        explained = Kq @ np.linalg.solve(Kq[chosen], Kq.T) if len(chosen) else np.zeros((80, 80))
        return multivariate_normal(np.zeros(80), explained + np.diag(noise)).logpdf(targets.T).sum()

    dense = [evidence(rows[:m]) for m in range(11)]
    np.testing.assert_allclose(evidence(rows[:0]) + np.cumsum(gains), dense[1:], rtol=1e-9)
    for m in range(3):  # the pool is most of the rows: nearly all others are worse
        worse = [evidence([*rows[:m], row]) <= dense[m + 1] + 1e-9 for row in range(80) if row not in rows[:m]]
        assert np.mean(worse) > 0.9


@pytest.mark.parametrize("classes", [1, 3])
def test_what_sggp_gains_adds_up_to_the_dense_posterior(rng, classes):
    """At every step (thesis, 3.35); and its bound is one of all rows."""
    sample, kernel = rng.standard_normal((80, 2)), make_kernel("se", lengthscale=1.2)
    targets, noise = rng.standard_normal((80, classes)), rng.uniform(0.05, 0.2, 80)
    rows, gains = greedy_posterior(sample, targets, 10, kernel, noise, 0, gap=0.0)
    assert len(rows) == len(gains) == 10

    def reached(chosen):
        K, Kq = kernel.cross(sample, sample[chosen]), kernel.cross(sample[chosen], sample[chosen])
        weighted = K.T @ (targets / noise[:, None])
        return 0.5 * np.sum(weighted * np.linalg.solve(K.T @ (K / noise[:, None]) + Kq, weighted))

    np.testing.assert_allclose(np.cumsum(gains), [reached(rows[:m]) for m in range(1, 11)], rtol=1e-7)
    assert reached(rows) <= reached(np.arange(80)) + 1e-9


def test_sggp_stops_at_its_gap(rng):
    """At the first size where the bounds, made of all rows chosen so far, are near enough; earlier for larger gaps."""
    sample, kernel = np.linspace(-10, 10, 100)[:, None], make_kernel("se", inputs=1, variance=1.0, lengthscale=1.0)
    y, noise = np.sinc(sample / np.pi) + 0.1 * rng.standard_normal((100, 1)), np.full(100, 0.01)
    rows, gains = greedy_posterior(sample, y, 100, kernel, noise, 0, gap=0.1)

    def gap(m):
        some = rows[:m]
        own = kernel.cross(sample[some], sample[some]) + 0.01 * np.eye(m)
        bound = 0.5 * np.sum(y**2) / 0.01 - 0.5 * np.sum(y[some] * np.linalg.solve(own, y[some]))
        assert bound > 0.5 * np.sum(y * np.linalg.solve(np.eye(100) * 0.01, y)) - 0.5 * np.sum(
            y * np.linalg.solve(kernel.cross(sample, sample) + 0.01 * np.eye(100), y)
        )
        return (bound - gains[:m].sum()) / (0.5 * (bound + gains[:m].sum()))

    assert gap(len(rows)) < 0.1 <= gap(len(rows) - 1)
    assert 2 < len(rows) < 60
    assert len(greedy_posterior(sample, y, 100, kernel, noise, 0, gap=0.025)[0]) > len(rows)


@pytest.mark.slow
def test_sggp_is_a_query_method(make_data, rng):
    X = rng.uniform(-2, 2, (300, 1))
    path = make_data("smooth.zarr", X=X, y=np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(300))
    for expert in ("bcm", "fitc", "sor"):
        settings = Settings(expert=expert, kernel="se", effort="quick", query_method="sggp", query=200)
        gbcm, other = GBCM.fit(path, settings), GBCM.fit(path, replace(settings, query_method="evidence"))
        assert gbcm.info()["query"] < other.info()["query"]
        assert "determine the others" not in gbcm.info()["advice"]
    with pytest.raises(InvalidOption, match="expected kmeans or pivoted with negative_binomial, got sggp"):
        Settings(task="counts", query_method="sggp")


def test_evidence_goes_where_the_targets_vary(rng):
    """Flat targets but for one tenth of the inputs: random rows are mostly wasted."""
    X, kernel = rng.uniform(0, 10, (400, 1)), make_kernel("se", inputs=1, lengthscale=0.1)
    y = np.where(X < 1, np.sin(12 * X), 0.0) + 0.05 * rng.standard_normal((400, 1))
    noise = np.full(400, 0.05**2)
    points = {m: select_points(X, 12, kernel=kernel, method=m, targets=y, noise=noise) for m in QUERY_METHODS}
    inside = {method: np.mean(found < 1.1) for method, found in points.items()}
    assert inside["evidence"] > 0.6
    assert max(inside["random"], inside["kmeans"]) < 0.4

    def evidence(chosen):
        Kq, Kqq = kernel.cross(X, chosen), kernel.cross(chosen, chosen)
        return multivariate_normal(np.zeros(400), Kq @ np.linalg.solve(Kqq, Kq.T) + np.diag(noise)).logpdf(y[:, 0])

    assert evidence(points["evidence"]) > evidence(points["random"]) + 100


# --- What rows say of the latent ---


def test_gaussian_and_onehot_targets_are_their_own(rng):
    X, y = rng.standard_normal((6, 2)), rng.standard_normal(6)
    obs = Observations(y, np.arange(1.0, 7.0))
    noise = Gaussian(0.3).noise(obs)
    np.testing.assert_allclose(noise, 0.3 / obs.weight)
    np.testing.assert_array_equal(working_targets(Gaussian(0.3), obs, Mean("zero"), X)[:, 0], y)
    labels = unweighted([0, 1, 2, 0, 1, 2])
    found = working_targets(OneHot(3, noise_variance=0.1), labels, Mean("constant"), X)
    np.testing.assert_allclose(found, 2.0 * np.eye(3)[[0, 1, 2, 0, 1, 2]] - 2.0 / 3.0, atol=1e-12)


def test_class_targets_are_linearised_at_zero(rng):
    """Logistic: curvature 1/4, score +-1/2. Softmax of C classes, as Poisson counts: 1/C, and 1 - 1/C or -1/C."""
    X, obs = rng.standard_normal((4, 2)), unweighted([0, 1, 1, 0])
    noise = Bernoulli().noise(obs)
    np.testing.assert_allclose(noise, 4.0)
    found = working_targets(Bernoulli(), obs, Mean("zero"), X)
    np.testing.assert_allclose(found[:, 0], [-2, 2, 2, -2])
    noise = Softmax(4).noise(obs)
    np.testing.assert_allclose(noise, 4.0)
    np.testing.assert_allclose(working_targets(Softmax(4), obs, Mean("zero"), X)[0], [3, -1, -1, -1])


def test_counts_have_no_targets_and_a_noise_by_exposure(rng):
    X, obs = rng.standard_normal((3, 2)), Observations(np.array([0.0, 5.0, 2.0]), np.ones(3), np.array([1.0, 2.0, 4.0]))
    noise = Poisson().noise(obs)
    np.testing.assert_allclose(noise, 1.0 / obs.exposure)
    assert working_targets(Poisson(), obs, Mean("zero"), X) is None


def test_a_trend_is_taken_away(rng):
    X = rng.standard_normal((50, 2))
    obs = unweighted(3.0 + X @ [1.0, -2.0])
    left = working_targets(Gaussian(0.1), obs, Mean("linear"), X)
    np.testing.assert_allclose(left, 0.0, atol=1e-12)


# --- The automatic number ---


@pytest.mark.parametrize(("inputs", "lengthscale"), [(1, 0.1), (2, 0.5), (8, 6.0)])
def test_degrees_are_estimated_from_a_quarter_of_the_rows(rng, inputs, lengthscale):
    """Within 20 % of tr K (K + Psi)^-1 of all rows; all rows give it exactly."""
    X, kernel = rng.uniform(-2, 2, (1200, inputs)), make_kernel("se", inputs, lengthscale=lengthscale)
    noise = np.full(1200, 0.05)
    lam = np.linalg.eigvalsh(kernel.cross(X, X))
    exact = (lam / (lam + 0.05)).sum()
    assert estimated_degrees(X[:300], noise[:300], 1200, kernel) == pytest.approx(exact, rel=0.2)
    assert estimated_degrees(X, noise, 1200, kernel) == pytest.approx(exact, rel=1e-9)


def test_automatic_number_is_twice_the_degrees_within_its_bounds(rng):
    X, noise = rng.uniform(-2, 2, (500, 2)), np.full(500, 0.05)

    def count(lengthscale, rows=500, fits=lambda count: True):
        return automatic_count(X, noise, rows, make_kernel("se", lengthscale=lengthscale), fits)

    found, degrees = count(0.3)
    assert found % 50 == 0
    assert 2 * degrees <= found < 2 * degrees + 50
    assert count(10.0)[0] == LEAST_QUERY
    assert count(0.01, rows=10**6)[0] <= MOST_QUERY
    assert count(0.3, fits=lambda count: count <= 170)[0] == 150
    assert count(0.3, fits=lambda count: False)[0] == LEAST_QUERY


def test_a_fit_chooses_its_number(wave):
    path, *_ = wave
    given = {"query": "auto", "kernel": "matern12", "learn": False, "set": {"likelihood.noise_variance": 0.3}}
    settings = Settings(**given, query_method="pivoted", rows_per_expert=50)
    gbcm = GBCM.fit(path, settings)
    assert gbcm.info()["query"] == gbcm.facts["query_asked"] == 200
    assert 75 < gbcm.facts["degrees_estimated"] < 100
    assert "200 query points (chosen for an estimated" in gbcm.info()["advice"]
    reading = 2**20  # more than what rows need while they are read, less than 50 more query points
    allowed = memory.BASE_BYTES + memory.expert_bytes(50, 151, kernels=1, laplace=False) + reading
    assert GBCM.fit(path, settings, runtime=SerialRuntime(allowed_bytes=allowed)).info()["query"] == 150
    with pytest.raises(InvalidOption, match="query: expected one of auto, got 'many'"):
        Settings(query="many")


@pytest.mark.parametrize("likelihood", ["bernoulli", "probit", "svm", "onehot", "softmax", "softmax_coupled"])
def test_a_fit_of_classes_chooses_for_the_evidence(classes, likelihood):
    """25 points do nearly as well as all that the kernel (at its defaults, which fit badly) tells apart."""
    path, X, _ = classes
    given = {"likelihood": likelihood, "query_method": "evidence", "learn": False, "rows_per_expert": 120}
    few, all_points = (GBCM.fit(path, Settings(query=count, **given)) for count in (25, 240))
    assert few.info()["query"] == 25
    assert np.mean(few.predict(X)["label"] == all_points.predict(X)["label"]) > 0.95
