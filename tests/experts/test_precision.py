"""Experts in mixed precision against those in double precision, and what is refused to them."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, IngestOptions, Settings
from bcmdist.committee.committee import Committee
from bcmdist.data.dataset import describe, open_data
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidOption, ModelsDiffer
from bcmdist.experts import precision
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.experts.precision import LARGEST_ERROR, mixed_message
from bcmdist.learning.first_commit import _job
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian, OneHot
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent

ROWS, QUERY, EACH, NEW = 1500, 150, 300, 200


@pytest.fixture
def in_single(monkeypatch):
    """Messages that were computed in single precision, by the trace of their precision."""
    found, single = [], precision._single_message

    def noted(*arguments):
        found.append(single(*arguments))
        return found[-1]

    monkeypatch.setattr(precision, "_single_message", noted)
    return found


def problem(rng, name, inputs, lengthscale, noise):
    """Rows (N, D), targets, new inputs, and what experts share."""
    X = rng.standard_normal((ROWS + NEW, inputs))
    y = np.sin(X @ rng.standard_normal((inputs, 3))).sum(axis=1)
    y = y / y.std() + np.sqrt(noise) * rng.standard_normal(len(X))
    kernel = parse_kernel(name, inputs=inputs).with_parameters({"lengthscale": np.full(inputs, lengthscale)})
    query = prepare(rng.standard_normal((QUERY, inputs)), kernel=kernel, mean=Mean("constant"))
    return query, X[:ROWS], unweighted(y[:ROWS]), X[ROWS:]


def beliefs(query, likelihood, X, obs, new, each=EACH):
    """Mean and variance at new inputs in double and in mixed precision, and the log evidence of the messages."""
    for compute_messages in (expert_message, mixed_message):
        blocks = [slice(a, a + each) for a in range(0, len(X), each)]
        total = sum((compute_messages(query, likelihood, X[b], obs[b]) for b in blocks), zero(query.size))
        yield (*predict_latent(query, Committee(total).posterior, new), total.evidence)


def moved(query, likelihood, X, obs, new, each=EACH):
    """By what means have moved, in standard deviations, and the standard deviations, as a share."""
    (mean, variance, evidence), (other, other_variance, other_evidence) = beliefs(query, likelihood, X, obs, new, each)
    assert abs(other_evidence - evidence) <= 1e-4 * len(X)
    sd, apart = np.sqrt(variance), mean - other
    return np.abs(apart / sd).max(), np.abs(np.sqrt(other_variance) / sd - 1.0).max()


@pytest.mark.parametrize("name", ["se", "matern32", "rq+linear"])
@pytest.mark.parametrize(("inputs", "lengthscale"), [(1, 1.0), (2, 1.5), (8, 3.0)])
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_means_move_by_less_than_a_thousandth_of_their_deviation(rng, in_single, name, inputs, lengthscale, noise):
    if "+" in name:
        kernel = parse_kernel(name, inputs=inputs)
        query, X, obs, new = problem(rng, "se", inputs, lengthscale, noise)
        query = prepare(query.points, kernel=kernel, mean=Mean("linear"))
    else:
        query, X, obs, new = problem(rng, name, inputs, lengthscale, noise)
    mean, sd = moved(query, Gaussian(noise), X, obs, new)
    assert 0.0 < mean <= LARGEST_ERROR  # other digits, that is
    assert sd <= 1e-4
    assert len(in_single) == ROWS // EACH


@pytest.mark.parametrize("name", ["kin40k", "pol"])
def test_of_real_data_too(rng, in_single, real_data, name):
    with np.load(real_data(name)) as data:
        X, y = data["X_train"][:3000], data["y_train"][:3000]
    X = X[:, X.std(axis=0) > 0]
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    inputs = X.shape[1]
    query = prepare(X[:200], kernel=parse_kernel("matern32", inputs=inputs), mean=Mean("constant"))
    mean, sd = moved(query, Gaussian(0.1), X[:2500], unweighted(y[:2500]), X[2500:], each=500)
    assert 0.0 < mean <= LARGEST_ERROR
    assert sd <= 1e-4
    assert len(in_single) == 5


def test_classes_that_share_a_factor(rng, in_single):
    query, X, obs, new = problem(rng, "matern32", 2, 1.0, 1.0)
    labels = unweighted(np.digitize(obs.y, [-0.5, 0.5]).astype(float))
    mean, _ = moved(query, OneHot(3, noise_variance=0.5), X, labels, new)
    assert 0.0 < mean <= LARGEST_ERROR
    assert in_single


def test_little_noise_is_heard_in_double_precision(rng, in_single, monkeypatch):
    """Bit for bit; without the rule means would move further."""
    query, X, obs, new = problem(rng, "se", 2, 1.5, 1e-3)
    likelihood = Gaussian(1e-3)
    one, other = (compute_messages(query, likelihood, X, obs) for compute_messages in (expert_message, mixed_message))
    assert not in_single
    for field in ("eta", "precision", "evidence", "rows"):
        assert np.array_equal(getattr(one, field), getattr(other, field))
    monkeypatch.setattr(precision, "LARGEST_ERROR", np.inf)
    (mean, variance, _), (far, _, _) = beliefs(query, likelihood, X, obs, new)
    assert in_single
    assert np.abs((mean - far) / np.sqrt(variance)).max() > 1e-3


def test_rows_that_say_more_together_than_apart_are_heard_again(rng, in_single, monkeypatch):
    """Where the diagonal of R has promised less than its factor keeps."""
    query, X, obs, _ = problem(rng, "se", 2, 1.5, 1e-2)
    monkeypatch.setattr(precision, "_diagonal_information", lambda *_: 0.0)
    one, other = (
        compute_messages(query, Gaussian(1e-2), X, obs) for compute_messages in (expert_message, mixed_message)
    )
    assert in_single
    assert np.array_equal(one.precision, other.precision)


def test_rounding_that_leaves_no_covariance_is_not_seen(rng, in_single, monkeypatch):
    monkeypatch.setattr(precision, "LARGEST_ERROR", np.inf)
    query, X, obs, _ = problem(rng, "se", 2, 1.5, 1e-3)
    one, other = (
        compute_messages(query, Gaussian(1e-9), X, obs) for compute_messages in (expert_message, mixed_message)
    )
    assert not in_single  # it has raised
    assert np.array_equal(one.precision, other.precision)


def test_the_same_rows_say_the_same_and_none_nothing(rng):
    query, X, obs, _ = problem(rng, "matern32", 2, 1.0, 1.0)
    one, two = (mixed_message(query, Gaussian(1.0), X, obs) for _ in range(2))
    assert np.array_equal(one.precision, two.precision)
    assert np.array_equal(one.eta, two.eta)
    nothing = mixed_message(query, Gaussian(1.0), X[:0], obs[:0])
    assert (nothing.rows, nothing.evidence, nothing.precision.any()) == (0, 0.0, False)
    assert np.isfinite(mixed_message(query, Gaussian(1.0), X[:1], obs[:1]).precision).all()


SETTINGS = Settings(
    kernel="matern32", learn=False, set={"likelihood.noise_variance": 0.5}, query=20, rows_per_expert=50
)
MIXED = replace(SETTINGS, precision="mixed")


@pytest.fixture
def mixed(wave, tmp_path):
    path, *_ = wave
    return GBCM.fit(path, MIXED, model=tmp_path / "mixed")


def test_a_fit_in_mixed_precision(mixed, wave, tmp_path):
    path, *_ = wave
    double = GBCM.fit(path, SETTINGS, model=tmp_path / "double")
    again = GBCM.load(mixed.url)
    assert again.info()["precision"] == "mixed"
    assert double.info()["precision"] == "double"
    one, other = double.committee.total.precision, again.committee.total.precision
    assert not np.array_equal(one, other)
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4 * np.abs(one).max())
    with pytest.raises(ModelsDiffer, match="they differ in precision"):
        double.merge(GBCM.prepare(path, MIXED, model=tmp_path / "third"), model=tmp_path / "both")


def test_what_was_said_is_not_taken_back(mixed, wave):
    path, *_ = wave
    key = mixed.ledger[0].key
    refused = r"expected a model of double precision to {}, .* got one of mixed .* fit it again with --precision double"
    with pytest.raises(InvalidOption, match=refused.format("forget")):
        mixed.forget([key])
    with pytest.raises(InvalidOption, match=refused.format("reweight")):
        mixed.reweight({key: 2.0})
    with pytest.raises(InvalidOption, match=refused.format("keep a --window")):
        mixed.ingest(mixed.source(path), IngestOptions(window=100))
    assert GBCM.load(mixed.url).commit == mixed.commit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"expert": "fitc"}, "expected double with residual diagonal, got mixed"),
        ({"likelihood": "poisson"}, "expected double with likelihood poisson and residual block, got mixed"),
        ({"approximation": "ep"}, "expected double with --approximation ep or --linearise running, got mixed"),
        ({"linearise": "running"}, "expected double with --approximation ep or --linearise running, got mixed"),
        ({"precision": "half"}, "precision: expected one of double, mixed, got 'half'"),
    ],
)
def test_what_does_not_go_together_is_refused(given, message):
    with pytest.raises(InvalidOption, match=message):
        Settings(**{"precision": "mixed"} | given)


def test_two_classes_are_refused_once_they_are_known(classes, tmp_path):
    path, *_ = classes
    with pytest.raises(InvalidOption, match="expected double with likelihood bernoulli and residual block, got mixed"):
        GBCM.fit(path, replace(MIXED, set={}), model=tmp_path / "model")
    assert not (tmp_path / "model" / "commits").exists()


def test_jobs_of_before_are_the_same(wave):
    """Nothing is noted of a precision that everybody had."""
    path, *_ = wave
    later = ("expert", "query_from", "like", "noise", "precision", "warp", "coordinates", "target_transform", "output")
    data, later = open_data(path), (*later, "grow", "grow_share", "query_most", "seconds")
    asked = {name: value for name, value in SETTINGS.flat().items() if name not in later} | {
        "passes": "1",
        "objective": "local",
        "query_method": "kmeans",
    }
    job = {"data": describe(data.url, data.x, data.y), "url": data.url, "settings": asked}
    assert _job(data, SETTINGS) == hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
    assert _job(data, MIXED) != _job(data, SETTINGS)
