import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.committee import Committee
from bcmdist.data.checks.checked_store import recorded
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.errors import DataChanged, InvalidOption, MemoryLimit
from bcmdist.experts.expert import conditional_message, expert_message
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.message import zero_message
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.diagnosis.diagnosis import PartitionRows, degrees_share, reliability
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
    V = query.design(p.X)
    mean = V.T @ Bernoulli().score(p.obs, f)  # at which the conditional mode is f
    total = zero_message(query, Bernoulli()) + conditional_message(query, Bernoulli(), p.X, p.obs, mean).message
    share = degrees_share(query, Bernoulli(), p.X, p.obs, Committee(total).posterior)
    assert share == pytest.approx(np.trace(K @ np.linalg.inv(K + np.diag(1 / w))), rel=1e-6)


GIVEN = Settings(partition="chunks", kernel="se", learn=False, query=15, rows_per_expert=60)


def test_gradient_of_a_fit_is_that_of_refits(wave):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN)
    gradient = gbcm.evidence_gradient()
    query, likelihood, scaling = gbcm.model.query, gbcm.model.likelihood, gbcm.model.scaling
    assert set(gradient) == {"kernel.variance", "kernel.lengthscale", "likelihood.noise_variance"}

    def evidence(noise):
        total, noisy = zero_message(query, likelihood), likelihood.with_parameters({"noise_variance": noise})
        for _, rows in read_all(partitions(open_data(path), 60)):
            obs = scaling.observations(rows.obs, likelihood.units)
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
            expert_message(moved, likelihood, scaling.inputs(rows.X), scaling.observations(rows.obs, likelihood.units))
            for _, rows in read_all(absorbed_partitions(gbcm.snapshot))
        )
        return Committee(sum(others, first + first)).log_evidence

    h, variance = 1e-5, query.kernel.variance
    numeric = (evidence(variance * np.exp(h)) - evidence(variance * np.exp(-h))) / (2 * h)
    assert weighted["kernel.variance"][0] == pytest.approx(numeric, rel=1e-5)


# --- Calibration ---


def test_calibration_of_a_fit_is_that_of_its_rows(wave):
    path, X, y = wave
    gbcm = GBCM.fit(path, GIVEN)
    told = gbcm.calibration()
    assert (told["rows"], told["partitions"]) == (240, len(gbcm.ledger))
    names = ["coverage50", "coverage80", "coverage95", "variance_ratio"]
    assert list(told) == ["rows", "partitions", *names, "at_rows"]
    assert list(told["at_rows"]) == names
    assert 0.5 < told["coverage95"] < 1
    scaling = gbcm.model.scaling
    obs = scaling.observations(unweighted(y), gbcm.model.likelihood.units)
    absorbed = [PartitionRows(scaling.inputs(X[b]), obs[b]) for b in split(240, [50, 100, 150, 200])]
    found = reliability(gbcm.model.query, gbcm.model.likelihood, absorbed, gbcm.model.query.points)
    assert told["coverage95"] == pytest.approx(found.coverage(0.95), rel=1e-9)
    assert told["variance_ratio"] == pytest.approx(found.variance_ratio, rel=1e-9)
    found = reliability(gbcm.model.query, gbcm.model.likelihood, absorbed, scaling.inputs(X))
    assert told["at_rows"]["coverage80"] == pytest.approx(found.coverage(0.8), rel=1e-9)
    np.testing.assert_allclose(  # as reported by predictions
        found.reported * scaling.y_scale**2, gbcm.predict(X)["variance"], rtol=1e-9
    )


def test_calibration_takes_whole_partitions_of_a_seed(wave, monkeypatch):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN)
    monkeypatch.setattr(diagnosis, "JUDGED_ROWS", 130)
    told = [gbcm.calibration(seed=seed) for seed in (0, 0, 1, 2)]
    assert told[0] == told[1]
    assert {t["rows"] for t in told} <= {100, 90, 130}
    assert len({t["coverage95"] for t in told}) > 1
    monkeypatch.setattr(diagnosis, "JUDGED_ROWS", 80)
    with pytest.raises(InvalidOption, match=r"at most 80 rows in total, got .* the smallest with 40"):
        gbcm.calibration()


def test_calibration_counts_weights(wave, tmp_path):
    path, *_ = wave
    gbcm = GBCM.fit(path, GIVEN, model=tmp_path / "model")
    doubled = gbcm.reweight({entry.key: 2.0 for entry in gbcm.ledger})
    assert doubled.calibration()["variance_ratio"] > gbcm.calibration()["variance_ratio"] + 0.1


def test_what_cannot_be_calibrated_is_refused(wave, classes):
    path, *_ = wave
    with pytest.raises(InvalidOption, match=r"expected a gaussian likelihood, .* got bernoulli; score held-out rows"):
        GBCM.fit(classes[0], GIVEN).calibration()
    with pytest.raises(InvalidOption, match=r"got 0, the smallest with 0"):
        GBCM.prepare(path, GIVEN).calibration()
    gbcm = GBCM.fit(path, GIVEN)
    with pytest.raises(MemoryLimit, match="calibration of 240 rows"):
        diagnosis.calibration(gbcm.snapshot, allowed_bytes=1e6)
    with recorded(path) as group:
        group["X"][7, 0] = 0.123
    with pytest.raises(DataChanged):
        gbcm.calibration()
