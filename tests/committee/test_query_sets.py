"""Committees whose partitions were absorbed through different query sets, against dense oracles."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.linalg import solve

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.experts.contributions import lifted
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero_message
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.query_sets import (
    EarlierQuery,
    QuerySets,
    StoredQuery,
    appended,
    beginning,
    is_beginning,
    lift_between,
    query_sets_from_arrays,
)
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from oracles import through_query_sets

KERNEL = parse_kernel("matern32", inputs=2)
NOISE = 0.1
# Sums of some hundred products of whitened numbers.
ROUNDING = 1e-10


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def query_at(points, mean="constant"):
    return prepare(points, kernel=KERNEL, mean=Mean(mean), jitters=(0.0,))


def partitions(rng, count, rows=30):
    X = [rng.uniform(-2, 2, (rows, 2)) for _ in range(count)]
    return X, [np.sin(x).sum(axis=1) + 0.3 * rng.normal(size=rows) for x in X]


def message(query, X, y, likelihood=None):
    likelihood = likelihood or make_likelihood("gaussian").with_parameters({"noise_variance": np.array([NOISE])})
    return expert_message(query, likelihood, X, unweighted(y))


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
def test_messages_through_different_sets_add_as_in_the_dense_model(rng, mean):
    first, more, other = (rng.uniform(-2, 2, (n, 2)) for n in (12, 5, 9))
    query = query_at(first, mean)
    larger = appended(query, more)
    joint = appended(larger, other)
    separate = query_at(other, mean)
    rows = np.arange(joint.functions)
    places = [int(np.flatnonzero((joint.points == point).all(axis=1))[0]) for point in separate.points]
    seen = [(query, rows[:12]), (larger, rows[:17]), (joint, rows), (separate, np.array(places))]
    X, y = partitions(rng, len(seen))
    total = sum(
        (lifted(message(q, x, t), lift_between(q, joint)) for (q, _), x, t in zip(seen[1:], X[1:], y[1:], strict=True)),
        lifted(message(query, X[0], y[0]), lift_between(query, joint)),
    )
    Xs = rng.uniform(-2, 2, (40, 2))
    found = predict_latent(joint, Committee(total, joint.belief).posterior, Xs)
    expected = through_query_sets(
        KERNEL, Mean(mean), NOISE, joint.points, [(some, x, t) for (_, some), x, t in zip(seen, X, y, strict=True)], Xs
    )
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


def test_a_grown_set_keeps_what_the_committee_believed(rng):
    query = query_at(rng.uniform(-2, 2, (12, 2)))
    (X,), (y,) = partitions(rng, 1)
    before = message(query, X, y)
    grown = appended(query, rng.uniform(-2, 2, (6, 2)))
    assert grown.functions == 18
    assert is_beginning(query, grown)
    after = lifted(before, lift_between(query, grown))
    Xs = rng.uniform(-3, 3, (50, 2))
    old = predict_latent(query, Committee(before, query.belief).posterior, Xs)
    new = predict_latent(grown, Committee(after, grown.belief).posterior, Xs)
    np.testing.assert_allclose(new, old, atol=ROUNDING)
    assert Committee(after, grown.belief).log_evidence == pytest.approx(Committee(before, query.belief).log_evidence)


def test_appended_points_extend_the_factor_of_the_first(rng):
    query = query_at(rng.uniform(-2, 2, (12, 2)))
    query = replace(
        query, jitter=1e-3, factor=np.linalg.cholesky(KERNEL.cross(query.points, query.points) + 1e-3 * np.eye(12))
    )
    found = appended(query, rng.uniform(-2, 2, (6, 2)))
    np.testing.assert_array_equal(found.factor[:12, :12], query.factor)
    expected = KERNEL.cross(found.points, found.points) + 1e-3 * np.eye(18)
    np.testing.assert_allclose(found.factor @ found.factor.T, expected, atol=ROUNDING)
    np.testing.assert_array_equal(np.triu(found.factor, 1), 0.0)


def test_points_that_the_set_determines_are_not_appended(rng):
    points = rng.uniform(-2, 2, (12, 2))
    query = query_at(points)
    assert appended(query, points).functions == 12
    assert appended(query, points + 1e-9).functions == 12
    assert appended(query, np.vstack([points + 1.0] * 2)).functions == 24


def test_the_most_uncertain_points_are_appended_first(rng):
    query = query_at(rng.uniform(-2, 2, (12, 2)))
    offered = np.vstack([rng.uniform(-2, 2, (20, 2)), [[9.0, 9.0]]])
    found = appended(query, offered, most=13)
    np.testing.assert_array_equal(found.points[12:], [[9.0, 9.0]])
    assert appended(query, offered, most=12).functions == 12
    assert appended(query, offered, share=2.0).functions == 12


def test_a_set_without_some_points_takes_their_conditional_mean(rng):
    points = rng.uniform(-2, 2, (12, 2))
    query, fewer = query_at(points, "zero"), query_at(points[:9], "zero")
    T = lift_between(query, fewer).matrix
    f = rng.normal(size=9)
    v = np.linalg.solve(fewer.factor, f)
    expected = KERNEL.cross(points, points[:9]) @ solve(KERNEL.cross(points[:9], points[:9]), f)
    np.testing.assert_allclose(query.factor @ T @ v, expected, atol=ROUNDING)


@pytest.mark.parametrize("name", ["softmax", "softmax_coupled", "onehot"])
def test_messages_of_several_classes_are_lifted_class_by_class(rng, name):
    likelihood = make_likelihood(name, 3)
    query = query_at(rng.uniform(-2, 2, (6, 2)))
    larger = appended(query, rng.uniform(-2, 2, (4, 2)))
    X = rng.uniform(-2, 2, (25, 2))
    own = message(query, X, rng.integers(0, 3, 25).astype(float), likelihood)
    lift = lift_between(query, larger)
    found = lifted(own, lift)
    assert found.eta.shape == zero_message(larger, likelihood).eta.shape
    assert found.precision.shape == zero_message(larger, likelihood).precision.shape
    Xs = rng.uniform(-2, 2, (10, 2))
    old = predict_latent(query, Committee(own, query.belief).posterior, Xs)
    new = predict_latent(larger, Committee(found, larger.belief).posterior, Xs)
    for a, b in zip(new, old, strict=True):
        np.testing.assert_allclose(a, b, atol=ROUNDING)
    back = lift.belief(Committee(found, larger.belief).posterior)
    expected = Committee(own, query.belief).posterior
    np.testing.assert_allclose(back.mean, expected.mean, atol=ROUNDING)
    # two more inversions of matrices with a condition number of a few hundred
    np.testing.assert_allclose(back.factor, expected.factor, atol=1e-8)


def test_precise_observations_of_a_smooth_function_are_believed_through_an_earlier_set():
    kernel = parse_kernel("se", inputs=1)
    later, earlier = (
        prepare(np.linspace(*ends, count)[:, None], kernel=kernel, mean=Mean("zero"), jitters=(0.0,))
        for ends, count in (((0.0, 5.0), 17), ((0.0, 2.5), 13))
    )
    lift = lift_between(earlier, later)
    X = np.linspace(0.0, 5.0, 1000)[:, None]
    likelihood = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([1e-10])})
    belief = Committee(message(later, X, np.sin(2 * X[:, 0]), likelihood), later.belief).posterior
    mean, variance = predict_latent(earlier, lift.belief(belief), earlier.points)
    expected, _ = predict_latent(later, belief, earlier.points)
    # the map from one set to the other is rounded, times the condition number of a covariance of some 1e12
    np.testing.assert_allclose(mean, expected, atol=1e-4)
    assert np.all(variance > 0.0)
    assert np.all(variance < 1e-6)


def test_query_sets_are_stored_and_restored(rng):
    present = query_at(rng.uniform(-2, 2, (12, 2)))
    other = appended(query_at(rng.uniform(-2, 2, (4, 2))), rng.uniform(-2, 2, (2, 2)))
    sets = QuerySets(
        [
            EarlierQuery(3, 3),
            EarlierQuery(4, 2),
            EarlierQuery(6, None, other),
            EarlierQuery(5, 4),
            EarlierQuery(7, None),
        ]
    )
    arrays, facts = sets.to_arrays()
    assert set(arrays) == {"earlier_points_2", "earlier_factor_2"}
    found = query_sets_from_arrays(arrays, [StoredQuery(**one) for one in facts], present, "here")
    assert [one.into for one in found] == [3, 2, None, 4, None]
    expected = [present, other, other, present, present]
    for number, (count, points) in enumerate(zip([3, 4, 6, 5, 7], expected, strict=True)):
        np.testing.assert_array_equal(found.query(number, present).points, points.points[:count])
        direct = lift_between(beginning(points, count), present).matrix
        np.testing.assert_allclose(found.lift(number, present).matrix, direct, atol=ROUNDING)


def test_points_without_prior_variance_add_nothing(rng):
    query = prepare(rng.uniform(-2, 2, (1, 2)), kernel=parse_kernel("linear", inputs=2), mean=Mean("zero"))
    points = np.array([[0.0, 0.0], [1.0, 0.3], [-0.4, 1.0]])
    assert appended(query, points).functions == 2  # of two dimensions
    assert appended(query, points[:1]).functions == 1
