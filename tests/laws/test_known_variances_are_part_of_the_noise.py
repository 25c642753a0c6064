"""Rows with known error variances t: y = f + e, e ~ N(0, s^2 / w + t), against dense processes with this diagonal."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM
from bcmdist.committee.committee import Committee
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations
from bcmdist.data.partition import partitions
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import local_expert, predict_local
from oracles import full_gp, independent_rest, pitc
from problems import (
    GIVEN,
    Problem,
    assert_as_in_its_ledger,
    assert_same_committee,
    make_committee,
    make_kernel,
    regression_problem,
    split,
)

NOISE = 0.02


@pytest.fixture
def problem(rng):
    """Known variances from none to a hundred times the learned one, and weights."""
    p = regression_problem(rng)
    t = np.where(np.arange(60) % 4 == 0, 0.0, 10.0 ** rng.uniform(-4, 0.3, 60))
    return Problem(p.X, Observations(p.obs.y, rng.uniform(0.5, 3.0, 60), target_variance=t), p.Xq, p.Xs)


def diagonal(obs):
    return NOISE / obs.weight + obs.target_variance


@pytest.mark.parametrize("mean", ["zero", "linear"])
@pytest.mark.parametrize("edges", [[], [20, 40]])
def test_query_points_at_all_rows_give_the_dense_process(problem, mean, edges):
    kernel = make_kernel("matern32", lengthscale=0.3)
    prior, _, committee = make_committee(problem, kernel, Gaussian(NOISE), split(60, edges), mean=mean, query=problem.X)
    m, v = predict_latent(prior, committee.posterior, problem.Xs)
    exact_m, exact_cov, evidence = full_gp(
        kernel, Mean(mean).design, problem.X, problem.obs.y, diagonal(problem.obs), problem.Xs
    )
    np.testing.assert_allclose(m, exact_m, atol=1e-10)
    np.testing.assert_allclose(v, np.diag(exact_cov), atol=1e-10)
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_a_committee_is_pitc(problem):
    kernel, blocks = make_kernel("matern32"), split(60, [20, 45])
    prior, _, committee = make_committee(problem, kernel, Gaussian(NOISE), blocks)
    m, v = predict_latent(prior, committee.posterior, problem.Xs)
    wanted = pitc(
        kernel,
        problem.Xq,
        [problem.X[b] for b in blocks],
        [problem.obs.y[b] for b in blocks],
        diagonal(problem.obs),
        problem.Xs,
    )
    np.testing.assert_allclose([m, v], wanted[:2], atol=1e-10)
    assert committee.log_evidence == pytest.approx(wanted[2], abs=1e-8)


@pytest.mark.parametrize("residual", ["diagonal", "none"])
def test_experts_of_independent_rows(problem, residual):
    query = prepare(problem.Xq, kernel=make_kernel("se"), mean=Mean("linear"), residual=residual, jitters=(1e-8,))
    V, Vs = query.design(problem.X), query.design(problem.Xs)
    rests = [
        query.kernel.diagonal(Z) - (B[:, :9] ** 2).sum(axis=1) if residual == "diagonal" else np.zeros(len(Z))
        for Z, B in ((problem.X, V), (problem.Xs, Vs))
    ]
    committee = Committee(
        sum(
            (expert_message(query, Gaussian(NOISE), problem.X[b], problem.obs[b]) for b in split(60, [33])),
            zero(query.size),
        )
    )
    m, v, evidence = independent_rest(V, rests[0], problem.obs.y, diagonal(problem.obs), Vs, rests[1])
    np.testing.assert_allclose(predict_latent(query, committee.posterior, problem.Xs), [m, v], atol=1e-9)
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_local_prediction_from_all_rows_is_the_dense_process(problem):
    kernel = make_kernel("matern32")
    query, _, committee = make_committee(problem, kernel, Gaussian(NOISE), [slice(0, 60)], mean="constant")
    seen = committee_at_rows(query, committee.posterior)
    expert = local_expert(seen, Gaussian(NOISE), problem.X, seen.columns(problem.X), problem.obs)
    found = predict_local(seen, expert, problem.Xs, seen.columns(problem.Xs))
    m, cov, _ = full_gp(kernel, Mean("constant").design, problem.X, problem.obs.y, diagonal(problem.obs), problem.Xs)
    np.testing.assert_allclose(found, [m, np.diag(cov)], atol=1e-10)


def test_a_row_left_out_is_predicted_as_without_it(problem):
    query, _, committee = make_committee(problem, make_kernel("matern32"), Gaussian(NOISE), [slice(0, 60)])
    rows = np.array([0, 7, 34])
    found = left_out_of_committee(query, Gaussian(NOISE), committee.posterior, problem.X, problem.obs, rows)
    for k, row in enumerate(rows):
        others = np.delete(np.arange(60), row)
        rest = expert_message(query, Gaussian(NOISE), problem.X[others], problem.obs[others])
        m, v = predict_latent(query, Committee(rest).posterior, problem.X[row : row + 1])
        np.testing.assert_allclose([found[0][k], found[1][k]], [m[0], v[0]], rtol=1e-9)


def test_repeated_rows_divide_the_whole_noise(problem):
    twice = problem.obs.repeated(2.0)
    np.testing.assert_allclose(Gaussian(NOISE).noise(twice), 0.5 * diagonal(problem.obs))
    message = expert_message(
        prepare(problem.Xq, kernel=make_kernel("se"), mean=Mean("zero"), residual="none"),
        Gaussian(NOISE),
        problem.X,
        problem.obs,
    )
    again = expert_message(
        prepare(problem.Xq, kernel=make_kernel("se"), mean=Mean("zero"), residual="none"),
        Gaussian(NOISE),
        problem.X,
        twice,
    )
    np.testing.assert_allclose(again.precision, 2.0 * message.precision, rtol=1e-10)


@pytest.fixture
def rows(make_data, rng):
    """A data set whose errors are known, in a unit far from 1, and its arrays."""
    X, t = rng.uniform(-2, 2, (200, 2)), np.where(rng.random(200) < 0.5, 4.0, 1e-3) * 49.0
    y = 7.0 * (np.sin(2 * X[:, 0]) + 0.3 * X.sum(axis=1)) + 100.0 + np.sqrt(t) * rng.standard_normal(200)
    return make_data(rows_per_chunk=50, X=X, y=y, target_variance=t), X, y, t


def dense(gbcm, X, y, t, Z):
    """Mean and variance of f, in original units, of the dense process with the model's hyper-parameters."""
    scaling, kernel = gbcm.model.scaling, gbcm.model.shared.kernel
    noise = gbcm.model.likelihood.noise_variance[0] + t / scaling.y_scale**2
    where = scaling.inputs(X), (y - scaling.y_mean) / scaling.y_scale, noise, scaling.inputs(Z)
    m, cov, _ = full_gp(kernel, gbcm.model.shared.mean.design, *where)
    return m * scaling.y_scale + scaling.y_mean, np.diag(cov) * scaling.y_scale**2


def test_a_fit_of_original_units_is_the_dense_process(rows, rng):
    path, X, y, t = rows
    gbcm = GBCM.fit(path, replace(GIVEN, kernel="matern32", query_method="random", query=200))
    Z = rng.uniform(-2, 2, (20, 2))
    found, (m, v) = gbcm.predict(Z), dense(gbcm, X, y, t, Z)
    np.testing.assert_allclose(found["mean"], m, atol=1e-9 * 7)
    np.testing.assert_allclose(found["variance"], v, atol=1e-9 * 49)


def test_observations_have_the_variance_of_their_own(rows, rng):
    path, *_ = rows
    gbcm = GBCM.fit(path, replace(GIVEN, noise="constant"))
    Z, t = rng.uniform(-2, 2, (20, 2)), rng.uniform(0, 5, 20)
    plain, own = gbcm.predict(Z), gbcm.predict(Z, target_variance=t)
    np.testing.assert_array_equal(plain["mean"], own["mean"])
    np.testing.assert_allclose(own["observation_variance"], plain["observation_variance"] + t, rtol=1e-12)
    assert np.all(own["upper95"] >= plain["upper95"])
    y = plain["mean"] + rng.standard_normal(20)
    scores = gbcm.score(Z, y, companions={"target_variance": t})
    noisy = gbcm.predict(Z, target_variance=t, quantiles=[0.1, 0.9])
    inside = (noisy["lower95"] <= y) & (y <= noisy["upper95"])
    assert scores["coverage95"] == pytest.approx(inside.mean())
    assert scores["mnlp"] < gbcm.score(Z, y, companions={"target_variance": np.zeros(20)})["mnlp"] + 1.0
    weight = 1.0 / (1.0 + t / gbcm.model.scaling.y_scale**2) ** 2
    assert scores["weighted_rmse"] == pytest.approx(np.sqrt(np.average((y - own["mean"]) ** 2, weights=weight)))


def test_serial_and_dask_agree(rows, cluster):
    path, X, *_ = rows
    for partition in ("chunks", "spatial"):
        settings = replace(GIVEN, partition=partition)
        one, other = GBCM.fit(path, settings), GBCM.fit(path, settings, runtime=cluster)
        assert_same_committee(one.committee, other.committee)
        np.testing.assert_allclose(one.predict(X)["mean"], other.predict(X)["mean"], rtol=1e-9)


def test_forgetting_ingesting_and_returning(rows, tmp_path):
    path, *_ = rows
    whole = GBCM.fit(path, GIVEN, model=tmp_path / "m")
    assert_as_in_its_ledger(whole)
    parts = partitions(open_data(path), 50)
    fewer = GBCM.load(tmp_path / "m").forget([parts[1].key])
    assert_as_in_its_ledger(fewer)
    again = fewer.absorb([parts[1]])
    assert_same_committee(again.committee, whole.committee)
    assert whole.info()["companions"] == ["target_variance"]


def test_local_predictions_weigh_faded_rows_as_a_whole(rows, rng):
    """A spatial model predicts locally with known variances: of one cell it is the dense process."""
    path, X, y, t = rows
    gbcm = GBCM.fit(path, replace(GIVEN, kernel="matern32", partition="spatial", rows_per_expert=400))
    assert gbcm.info()["method"] == "local"
    Z = rng.uniform(-2, 2, (20, 2))
    found, (m, v) = gbcm.predict(Z), dense(gbcm, X, y, t, Z)
    np.testing.assert_allclose(found["mean"], m, atol=1e-8 * 7)
    np.testing.assert_allclose(found["variance"], v, atol=1e-8 * 49)
