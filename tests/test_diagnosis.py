import numpy as np
import pytest

from bcmdist import GBCM, Settings, passes
from bcmdist.committee import Committee
from bcmdist.degrees import degrees_share
from bcmdist.errors import InvalidOption
from bcmdist.expert import conditional_message, expert_message, zero_message
from bcmdist.laplace import laplace_mode
from bcmdist.likelihoods import Bernoulli, Gaussian
from bcmdist.mean import Mean
from bcmdist.partition import open_data, partitions, read_all
from bcmdist.query import prepare
from oracles import pitc_covariance
from problems import class_problem, make_committee, make_kernel, regression_problem, split

BLOCKS = split(60, [20, 45])


def test_degrees_of_freedom_are_the_trace_of_the_smoother(rng):
    """tr K (K + Psi)^-1 of the dense PITC covariance K."""
    p, kernel = regression_problem(rng), make_kernel("matern32")
    query, _, committee = make_committee(p, kernel, Gaussian(0.05), BLOCKS)
    K = pitc_covariance(kernel, Mean("zero").design, p.Xq, query.jitter, [p.X[b] for b in BLOCKS])
    shares = [degrees_share(query, Gaussian(0.05), p.X[b], p.obs[b], committee.posterior) for b in BLOCKS]
    assert sum(shares) == pytest.approx(np.trace(K @ np.linalg.inv(K + 0.05 * np.eye(60))), rel=1e-9)


def test_degrees_with_all_rows_as_query_points_are_those_of_the_full_gp(rng):
    p, kernel = regression_problem(rng), make_kernel("matern32")
    query, _, committee = make_committee(p, kernel, Gaussian(0.05), BLOCKS, query=p.X)
    K = kernel.cross(p.X, p.X)
    exact = np.trace(K @ np.linalg.inv(K + 0.05 * np.eye(60)))
    shares = [degrees_share(query, Gaussian(0.05), p.X[b], p.obs[b], committee.posterior) for b in BLOCKS]
    assert sum(shares) == pytest.approx(exact, rel=1e-8)
    assert committee.degrees_of_freedom == pytest.approx(exact, rel=1e-8)


def test_one_laplace_expert_has_those_of_its_smoother(rng):
    p, kernel = class_problem(rng), make_kernel("matern32")
    query = prepare(p.Xq, kernel=kernel, mean=Mean("zero"))
    K = kernel.cross(p.X, p.X)
    f = laplace_mode(K, p.obs, Bernoulli())
    w = Bernoulli().curvature(p.obs, f)
    V = query.whiten(p.X)
    mean = V.T @ Bernoulli().score(p.obs, f)  # at which the conditional mode is f
    total = zero_message(query, Bernoulli()) + conditional_message(query, Bernoulli(), p.X, p.obs, mean).message
    share = degrees_share(query, Bernoulli(), p.X, p.obs, Committee(total).posterior)
    assert share == pytest.approx(np.trace(K @ np.linalg.inv(K + np.diag(1 / w))), rel=1e-6)


GIVEN = Settings(kernel="se", learn=False, query=15, rows_per_expert=60)


def test_gradient_of_a_fit_is_that_of_refits(wave):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN)
    gradient = gbcm.evidence_gradient()
    query, likelihood, scaling = gbcm.model.query, gbcm.model.likelihood, gbcm.model.scaling
    assert set(gradient) == {"kernel.variance", "kernel.lengthscale", "likelihood.noise_variance"}

    def evidence(noise):
        total, noisy = zero_message(query, likelihood), likelihood.with_parameters({"noise_variance": noise})
        for _, rows in read_all(partitions(open_data(path), 60)):
            obs = scaling.observations(rows.obs, "affine")
            total = total + expert_message(query, noisy, scaling.inputs(rows.X), obs)
        return Committee(total).log_evidence

    h = 1e-5
    noise = likelihood.noise_variance
    numeric = (evidence(noise * np.exp(h)) - evidence(noise * np.exp(-h))) / (2 * h)
    assert gradient["likelihood.noise_variance"][0] == pytest.approx(numeric, rel=1e-5)


def test_gradient_needs_converged_passes(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    with pytest.raises(InvalidOption, match="converged Laplace passes, got bernoulli after 1 passes"):
        gbcm.evidence_gradient()
    assert np.isfinite(gbcm.refine().evidence_gradient()["kernel.variance"][0])


def test_effective_parameters_of_a_fit(wave):
    path, *_ = wave
    found = GBCM.fit(path, GIVEN).effective_parameters()
    assert 0 < found["query"] <= 16
    assert found["data"] > found["query"] - 1e-9  # with few query points the rest is taken for local wiggles


def test_joint_predictions_have_the_marginals_of_predict(wave):
    path, X, _ = wave
    gbcm = GBCM.fit(path, GIVEN)
    mean, covariance = gbcm.predict_joint(X[:20])
    alone = gbcm.predict(X[:20])
    np.testing.assert_allclose(mean, alone["mean"], rtol=1e-12)
    np.testing.assert_allclose(np.diag(covariance), alone["variance"], rtol=1e-9)
    samples = gbcm.sample(X[:20], size=2000, seed=1)
    assert samples.shape == (2000, 20)
    assert np.abs((samples.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / 2000)).max() < 5


def test_gradient_counts_partitions_by_their_weight(wave):
    """Two of one partition are a partition that stands twice in the data."""
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN)
    query, likelihood, scaling = gbcm.model.query, gbcm.model.likelihood, gbcm.model.scaling
    weighted = gbcm.reweight({gbcm.ledger[0].key: 2.0}).evidence_gradient()

    def evidence(variance):
        moved = prepare(query.points, kernel=query.kernel.with_parameters({"variance": variance}), mean=query.mean)
        first, *others = (
            expert_message(moved, likelihood, scaling.inputs(rows.X), scaling.observations(rows.obs, "affine"))
            for _, rows in read_all(passes.heard_partitions(gbcm))
        )
        return Committee(sum(others, first + first)).log_evidence

    h, variance = 1e-5, query.kernel.variance
    numeric = (evidence(variance * np.exp(h)) - evidence(variance * np.exp(-h))) / (2 * h)
    assert weighted["kernel.variance"][0] == pytest.approx(numeric, rel=1e-5)
