"""Blocks left out of samples: their errors, their sizes, how they weigh, and what they decide."""

import itertools

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.experts.laplace import laplace_mode
from bcmdist.learning.evidence.local_tasks import BlocksOfSample
from bcmdist.learning.gap_points import Gaps
from bcmdist.learning.left_out.blocks import (
    CUTS,
    block_numbers,
    by_size,
    cavities_by_block,
    densities_by_block,
    errors_by_block,
    shares_of,
)
from bcmdist.learning.left_out.density import left_out_densities, left_out_labels, normal_density
from bcmdist.learning.left_out.score import Score, margin
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Bernoulli, Gaussian, OneHot, Poisson
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import open_store

KERNEL = parse_kernel("matern32", inputs=2).with_parameters({"lengthscale": np.array([0.7, 1.1])})


def test_blocks_are_predicted_from_the_rows_outside(rng):
    X, y = rng.uniform(-2, 2, (60, 2)), rng.standard_normal(60)
    numbers = np.array([rng.integers(7, size=60), rng.integers(2, size=60)])
    error, variance = errors_by_block(KERNEL.cross(X, X), Gaussian(0.2), unweighted(y), numbers)
    S = KERNEL.cross(X, X) + 0.2 * np.eye(60)
    for k, own in enumerate(numbers):
        for block in np.unique(own):
            b, r = own == block, own != block
            W = np.linalg.solve(S[np.ix_(r, r)], S[np.ix_(r, b)]).T
            np.testing.assert_allclose(error[k, b], y[b] - W @ y[r], atol=1e-9)
            np.testing.assert_allclose(variance[k, b], np.diag(S[np.ix_(b, b)] - W @ S[np.ix_(r, b)]), rtol=1e-9)


def test_blocks_at_the_mode_are_those_of_gaussian_rows(rng):
    """With the curvature as the site nothing is approximate there."""
    X, obs = rng.uniform(-2, 2, (60, 2)), unweighted(rng.standard_normal(60))
    numbers = np.array([rng.integers(7, size=60), rng.integers(2, size=60)])
    error, variance = errors_by_block(KERNEL.cross(X, X), Gaussian(0.2), obs, numbers)
    mean, without = cavities_by_block(KERNEL.cross(X, X), Gaussian(0.2), obs, numbers)
    np.testing.assert_allclose(mean, obs.y - error, atol=1e-9)
    np.testing.assert_allclose(without, variance - 0.2, rtol=1e-8)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(), OneHot(3, 0.3)], ids=lambda one: one.name)
def test_blocks_of_one_row_are_rows_left_out(likelihood, rng):
    X, y = rng.uniform(-2, 2, (40, 2)), rng.integers(0, 2, 40) * 1.0
    K, obs, numbers = KERNEL.cross(X, X), unweighted(y), np.arange(40)[None]
    found = densities_by_block(K.copy(), likelihood, obs, numbers)[:, 0]
    rows = left_out_labels if likelihood.on_labels else left_out_densities
    np.testing.assert_allclose(found, np.atleast_2d(rows(K.copy(), likelihood, obs, 40)), rtol=1e-7)


def test_counts_in_a_block_are_predicted_as_by_the_other_rows(rng):
    """Sites stay where they were linearised with the block: near to a fit without it."""
    X = rng.uniform(-2, 2, (60, 2))
    K = 0.5 * KERNEL.cross(X, X)
    obs = unweighted(rng.poisson(np.exp(np.linalg.cholesky(K + 1e-9 * np.eye(60)) @ rng.standard_normal(60) + 1.0)))
    numbers = (X[:, :1] > 0.0).T * 1
    mean, variance = cavities_by_block(K.copy(), Poisson(), obs, numbers)
    for block in (0, 1):
        b, r = numbers[0] == block, numbers[0] != block
        f = laplace_mode(K[np.ix_(r, r)], obs[r], Poisson())
        w = Poisson().curvature(obs[r], f)
        W = np.linalg.solve(K[np.ix_(r, r)] + np.diag(1 / w), K[np.ix_(r, b)]).T
        np.testing.assert_allclose(variance[0, b], np.diag(K[np.ix_(b, b)] - W @ K[np.ix_(r, b)]), rtol=0.1)
        deviation = np.sqrt(variance[0, b])
        np.testing.assert_allclose(
            mean[0, b] / deviation, W @ (f + Poisson().score(obs[r], f) / w) / deviation, atol=0.3
        )


def test_blocks_are_compact_and_nested(rng):
    Z = rng.uniform(0, 1, (512, 2))
    numbers = block_numbers(Z)
    assert [len(np.unique(own)) for own in numbers] == list(CUTS)
    for small, large in itertools.pairwise(numbers):
        assert all(len(np.unique(large[small == block])) == 1 for block in np.unique(small))
    for own, cut in zip(numbers, CUTS, strict=True):
        assert np.bincount(own).min() >= 0.9 * 512 / cut
        widths = [np.ptp(Z[own == block], axis=0).max() for block in np.unique(own)]
        assert np.median(widths) < 2.0 / np.sqrt(cut)
    assert block_numbers(np.zeros((5, 2))).max() == 0  # equal rows are never separated
    assert len(np.unique(block_numbers(Z[:9])[0])) == 9


def test_rows_and_blocks_weigh_as_the_distances_of_what_is_predicted(rng):
    Z = rng.uniform(0, 1, (2000, 2))
    gaps = Gaps(0.1, 0.2, np.ones(3))
    assert sum(shares_of(Z)) == sum(shares_of(Z, gaps=gaps)) == pytest.approx(1.0)
    assert len(shares_of(Z)) == 1 + len(CUTS)
    assert shares_of(Z, blocks=False) == (1.0,)
    assert shares_of(Z, gaps=gaps)[1] == 0.1
    near, far = shares_of(Z, rng.uniform(0, 1, (500, 2))), shares_of(Z, rng.uniform(2, 3, (500, 2)))
    assert near[0] > 0.8
    assert far == (0.0, 0.0, 0.0, 1.0)


def test_what_weighs_nothing_decides_nothing():
    one = Score((np.zeros(3), np.full(1, -np.inf)), (1.0, 0.0))
    other = Score((np.ones(3), np.zeros(1)), (1.0, 0.0))
    assert one.value == 0.0
    assert margin(other, one).nats == 1.0
    assert margin(other, one).error == 0.0


@pytest.fixture
def sample(make_data, tmp_path, rng):
    """A runtime, a data set of 100 rows, and two scalings of its inputs."""
    X = rng.uniform(0, 1, (100, 2))
    data = open_data(make_data("rows.zarr", X=X, y=X[:, 0] + 0.1 * rng.standard_normal(100), rows_per_chunk=100))
    scalings = {
        "plain": Scaling(np.full(2, 0.5), np.full(2, 0.3), 0.5, 0.3),
        "other": Scaling(np.zeros(2), np.array([9.0, 0.1]), 0.5, 0.3),
    }
    store = open_store(str(tmp_path / "model"))
    with store.transient({name: scaling_to_array(one) for name, one in scalings.items()}) as references:
        yield SerialRuntime(), partitions(data, 100), references


def test_candidates_of_other_scalings_leave_out_the_same_blocks(sample):
    runtime, parts, references = sample

    def left_out(scaling, drawn):
        about = references[scaling], KERNEL, "constant", Gaussian(0.1), None
        return runtime.sum(BlocksOfSample(*about, references[drawn], (1.0, 1.0)), parts, label="test").values

    plain, other = left_out("plain", "plain"), left_out("other", "plain")
    np.testing.assert_array_equal(plain[0], other[0])
    assert [len(means) for means in by_size(plain)] == list(CUTS)
    assert not np.allclose(plain[1], other[1])
    assert not np.array_equal(left_out("other", "other")[1], other[1])


def test_a_covariance_that_fails_has_no_density(sample):
    runtime, parts, references = sample
    constant = parse_kernel("constant", inputs=2)
    task = BlocksOfSample(
        references["plain"], constant, "zero", Gaussian(1e-300), None, references["plain"], (1.0, 1.0)
    )
    assert np.all(runtime.sum(task, parts, label="test").values[1] == -np.inf)


def flight_lines(rng):
    """Rows along lines, with a covariate that matters everywhere, and blocks between them; a field and noise."""
    X = np.column_stack([rng.uniform(0, 10, (1500, 2)), rng.standard_normal(1500)])
    features = [np.sin(1.3 * X[:, 0] + p) * np.cos(1.7 * X[:, 1] + 2 * p) for p in range(3)]
    y = np.sum(features, axis=0) + 0.7 * X[:, 2] + 0.3 * rng.standard_normal(1500)
    gap = np.any([np.linalg.norm(X[:, :2] - c, axis=1) < 1.6 for c in ([3, 3], [7, 6], [2, 8], [9, 1])], axis=0)
    return X, y, gap


@pytest.mark.slow
def test_predictions_in_blocks_without_rows_are_never_below_the_mean(rng):
    """By log density and by squared error, of the mean as well as of a straight line."""
    X, y, gap = flight_lines(rng)
    gbcm = GBCM.fit(X[~gap], y[~gap], Settings(partition="spatial", query=100, seed=1))
    told = gbcm.predict(X[gap])
    H = np.column_stack([np.ones(len(X)), X])
    line = H @ np.linalg.lstsq(H[~gap], y[~gap], rcond=None)[0]
    for simple in (np.full(len(y), y[~gap].mean()), line):
        assert np.mean((y[gap] - told["mean"]) ** 2) <= np.mean((y - simple)[gap] ** 2)
        own = normal_density((y - simple)[gap], np.var((y - simple)[~gap]))
        ours = normal_density(y[gap] - told["mean"], told["observation_variance"])
        assert ours.mean() >= own.mean()


@pytest.mark.slow
def test_a_trend_beyond_the_rows_is_taken_for_what_lies_far_from_them(rng):
    """A plane under a short field: told by blocks, and used beyond the rows."""
    X = rng.uniform(0, 10, (1200, 2))
    y = 0.5 * X[:, 0] + np.sin(3.0 * X[:, 0]) * np.sin(3.0 * X[:, 1]) + 0.1 * rng.standard_normal(1200)
    gbcm = GBCM.fit(X, y, Settings(partition="spatial", query=100, effort="quick"))
    mean = next(one for one in gbcm.info()["decisions"] if one["of"] == "mean")
    assert mean["taken"] == "linear"
    assert gbcm.predict(np.array([[16.0, 5.0]]))["mean"][0] == pytest.approx(8.0, abs=1.5)
