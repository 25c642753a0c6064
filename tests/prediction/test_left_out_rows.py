"""Rows are left out of a committee as if they had never been absorbed."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.data.rows import read_all
from bcmdist.experts.expert import expert_message
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.held_out import LeftOutByCommittee
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee


def first_partition(gbcm):
    (part, rows), *_ = read_all(absorbed_partitions(gbcm.snapshot))
    return model_rows(gbcm.model, part, rows)


@pytest.mark.parametrize("expert", ["bcm", "fitc", "sor"])
@pytest.mark.parametrize("copies", [1.0, 0.5, 2.0])
def test_gaussian_rows_are_left_out_exactly(make_data, rng, expert, copies):
    X = rng.uniform(-2, 2, (90, 2))
    path = make_data(X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(90), rows_per_chunk=30)
    gbcm = GBCM.fit(
        path, Settings(partition="chunks", kernel="se", learn=False, query=15, rows_per_expert=30, expert=expert)
    )
    gbcm = gbcm.reweight({gbcm.ledger[0].key: copies})
    shared, likelihood = gbcm.model.shared, gbcm.model.likelihood
    X, obs = first_partition(gbcm)
    mean, variance = left_out_of_committee(shared, likelihood, gbcm.committee.posterior, X, obs, weight=copies)
    for i in (0, 7, 29):
        others = np.arange(len(X)) != i
        whole = expert_message(shared, likelihood, X, obs).weighted(copies)
        rest = expert_message(shared, likelihood, X[others], obs[others]).weighted(copies)
        without = gbcm.committee.withdraw(whole).absorb(rest)
        expected = predict_latent(shared, without.posterior, X[i : i + 1])
        np.testing.assert_allclose([mean[i], variance[i]], np.ravel(expected), rtol=1e-7)


def test_large_partitions_are_calibrated_by_some_of_their_rows(make_data, rng):
    X = rng.uniform(-2, 2, (60, 1))
    path = make_data(X=X, y=(X[:, 0] + 0.5 * rng.standard_normal(60) > 0) * 1, rows_per_chunk=60)
    gbcm = GBCM.fit(path, Settings(partition="chunks", task="classification", kernel="se", learn=False, query=8))
    (part, rows), *_ = read_all(absorbed_partitions(gbcm.snapshot))
    every, few = (LeftOutByCommittee(gbcm.snapshot.reference, most)(part, rows) for most in (5000, 7))
    some = np.linspace(0, 59, 7).astype(int)
    np.testing.assert_allclose(few.mean, every.mean[some])
    np.testing.assert_array_equal(few.target, rows.obs.y[some])


def test_labels_are_left_out_nearly(make_data, rng):
    """Sites of the other rows hardly move: to a quarter of what the rows themselves had moved."""
    X = rng.uniform(-2, 2, (90, 2))
    path = make_data(X=X, y=(X[:, 0] + 0.5 * rng.standard_normal(90) > 0) * 1, rows_per_chunk=30)
    gbcm = GBCM.fit(
        path,
        Settings(partition="chunks", task="classification", kernel="se", learn=False, query=15, rows_per_expert=30),
    )
    shared, likelihood = gbcm.model.shared, gbcm.model.likelihood
    X, obs = first_partition(gbcm)
    mean, variance = left_out_of_committee(shared, likelihood, gbcm.committee.posterior, X, obs)
    absorbed, _ = predict_latent(shared, gbcm.committee.posterior, X)
    exact, spread = np.empty(30), np.empty(30)
    whole = expert_message(shared, likelihood, X, obs)
    for i in range(30):
        others = np.arange(30) != i
        without = gbcm.committee.withdraw(whole).absorb(expert_message(shared, likelihood, X[others], obs[others]))
        exact[i : i + 1], spread[i : i + 1] = predict_latent(shared, without.posterior, X[i : i + 1])
    few = left_out_of_committee(shared, likelihood, gbcm.committee.posterior, X, obs, np.array([4, 9]))
    np.testing.assert_allclose(few, [mean[[4, 9]], variance[[4, 9]]], rtol=1e-9)
    assert np.linalg.norm(mean - exact) < 0.25 * np.linalg.norm(absorbed - exact)
    np.testing.assert_allclose(variance, spread, rtol=0.05)
