"""Noisy inputs with other likelihoods than normal errors: posterior and messages against quadrature, and fits."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidOption
from bcmdist.experts.expert import expert_message
from bcmdist.experts.laplace import laplace_mode
from bcmdist.methods.noisy_inputs.evidence import kept_rows, left_out_density
from bcmdist.methods.noisy_inputs.expert import matched
from bcmdist.methods.noisy_inputs.hmc import sampled
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process, log_density
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from problems import make_kernel

KNOWN = Settings(
    partition="chunks",
    noisy_inputs="clean",
    rows_per_expert=50,
    query=40,
    kernel="se",
    learn=False,
    set={"kernel.variance": 1.5, "kernel.lengthscale": 0.4},
    likelihood="poisson",
)
TARGETS = {"poisson": [1.0, 4.0], "bernoulli": [0.0, 1.0]}


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    with threadpool_limits(1, user_api="blas"):
        yield


def a_process(name, inputs=1):
    return Process(make_kernel("se", inputs), Mean("zero"), make_likelihood(name))


def pair(name):
    """A row beside one whose input is known; the error of its input is as large as the lengthscale."""
    return NoisyRows(np.array([[0.0], [0.8]]), np.array([[[0.0]], [[1.0]]]), unweighted(np.array(TARGETS[name])))


@pytest.mark.parametrize("name", ["poisson", "negative_binomial", "bernoulli", "probit", "weibull", "student_t"])
def test_the_gradient_in_steps_agrees_with_differences(rng, name):
    obs = unweighted(rng.integers(0, 2, 12) + (1.0 if name == "weibull" else 0.0))
    noisy = NoisyRows(rng.standard_normal((12, 2)), 0.3 * rng.standard_normal((12, 2, 2)), obs)
    process, h = replace(a_process(name, 2), mean=Mean("linear")), 1e-4
    for rows in (noisy, noisy.tempered(3.0)):
        steps, move = rng.standard_normal((12, 2)), rng.standard_normal((12, 2))
        _, gradient = log_density(process, rows, steps)
        above, below = (log_density(process, rows, steps + sign * h * move)[0] for sign in (1, -1))
        # Modes are found to 1e-9 of a step, and h^2 times a third derivative is left.
        assert np.vdot(gradient, move) == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-5)


def by_quadrature(process, noisy, at):
    """Evidence of the pair, log p(y | x) on a grid of the uncertain step, and moments of f(at): no approximation but
    grids."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    weights, grid = weights / weights.sum(), np.linspace(-6.0, 6.0, 61)
    prior = np.exp(-0.5 * grid**2) * (grid[1] - grid[0]) / np.sqrt(2 * np.pi)
    a, b, c = (u.ravel() for u in np.meshgrid(nodes, nodes, nodes, indexing="ij"))
    mass = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
    log_p, moments = [], []
    for z in grid:
        X = np.vstack([noisy.at(np.array([[0.0], [z]])), at])
        f = np.linalg.cholesky(process.kernel.cross(X, X) + 1e-9 * np.eye(3)) @ np.array([a, b, c])
        joint = mass * np.exp(sum(process.likelihood.log_density(noisy.obs[k : k + 1], f[k]) for k in (0, 1)))
        log_p.append(np.log(joint.sum()))
        moments.append([(joint @ f[2]) / joint.sum(), (joint @ f[2] ** 2) / joint.sum()])
    p = prior * np.exp(log_p)
    first, second = p @ np.array(moments) / p.sum()
    return np.log(p.sum()), np.array(log_p), (first, second - first**2)


@pytest.mark.parametrize("name", TARGETS)
def test_posterior_evidence_and_message_agree_with_quadrature(name):
    process, noisy, at = a_process(name), pair(name), np.array([[0.5]])
    evidence, log_p, (mean, variance) = by_quadrature(process, noisy, at)
    grid = np.linspace(-6.0, 6.0, 61)
    found = np.array([log_density(process, noisy, np.array([[0.0], [z]]))[0] for z in grid]) + 0.5 * grid**2
    # The error of Laplace's approximation, in nats: it changes the posterior of x by 4 % at most.
    assert np.abs(found - log_p).max() < 0.05
    assert np.ptp(found - log_p) < 0.04
    draws = sampled(process, noisy, np.zeros((2, 1)), count=100, burn_in=40, seed=1).steps
    shared = prepare(at, kernel=process.kernel, mean=process.mean)
    messages = [expert_message(shared, process.likelihood, X, noisy.obs) for X in noisy.at(draws)]
    message, scale = matched(messages), np.sqrt(process.kernel.diagonal(at)[0])
    precision = 1.0 + message.precision[0, 0]
    deviation = np.sqrt(variance)
    # Four standard errors of 100 draws that agree within .3 deviations, and Laplace's skewness: .1 deviations.
    assert scale * message.eta[0] / precision == pytest.approx(mean, abs=0.15 * deviation)
    assert scale / np.sqrt(precision) == pytest.approx(deviation, rel=0.05)
    total = message.evidence + 0.5 * message.eta[0] ** 2 / precision - 0.5 * np.log(precision)
    # The mean over the posterior of x (eq. 4.38), which is at least the evidence.
    assert evidence - 0.05 < total < evidence + 0.2


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_rows_left_out_are_predicted_by_the_mode_of_the_others(rng, name):
    """Of inputs without errors (Rasmussen & Williams 2006, eqs. 3.21 and 3.24), averaged by quadrature."""
    noisy = NoisyRows(rng.uniform(-2, 2, (5, 1)), np.zeros((5, 1, 1)), unweighted(rng.integers(0, 2, 5) * 1.0))
    process, kept = a_process(name), kept_rows(5)
    X, Z, obs = noisy.inputs[kept], noisy.inputs[~kept], noisy.obs[kept]
    K, k = process.kernel.cross(X, X), process.kernel.cross(X, Z)
    f = laplace_mode(K, obs, process.likelihood)
    A = np.linalg.solve(K + np.diag(1.0 / process.likelihood.curvature(obs, f)), k)
    mean, variance = k.T @ np.linalg.solve(K, f), process.kernel.diagonal(Z) - (k * A).sum(axis=0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    density = np.exp(process.likelihood.log_density(noisy.obs[~kept], mean + np.sqrt(variance) * nodes))
    expected = np.log(density @ weights / weights.sum())
    assert left_out_density(process, noisy, np.zeros((5, 1)), 0) == pytest.approx(expected, abs=1e-7)


# --- Fits ---


def counted(rows=100, variance=0.6, seed=1):
    """Inputs, seen with errors, and counts of a rate of 3 exp(2.5 sinc); companions."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, rows)
    y = rng.poisson(3.0 * np.exp(2.5 * np.sinc(x / np.pi))).astype(float)
    seen = (x + np.sqrt(variance) * rng.standard_normal(rows))[:, None]
    return seen, y, {"X_variance": np.full((rows, 1), variance)}


def error_of_rate(gbcm):
    grid = np.linspace(-9, 9, 100)
    return np.sqrt(np.mean((gbcm.predict(grid[:, None])["mean"] - np.log(3.0) - 2.5 * np.sinc(grid / np.pi)) ** 2))


@pytest.mark.slow
def test_counts_at_uncertain_inputs_are_fitted_better_with_their_errors(tmp_path):
    X, y, companions = counted()
    plain = GBCM.fit(X, y, replace(KNOWN, noisy_inputs="no"))
    gbcm = GBCM.fit(X, y, KNOWN, companions=companions, model=tmp_path / "model")
    # Seven seeds: .41 to .96 of the plain error.
    assert error_of_rate(gbcm) < 0.9 * error_of_rate(plain)
    assert gbcm.refine().commit == gbcm.commit  # draws belong to the first pass
    before = gbcm.predict(np.zeros((1, 1)))["mean"]
    more = gbcm.partial_fit(*counted(30, seed=2)[:2], companions=counted(30, seed=2)[2])
    added = {entry.key for entry in more.snapshot.ledger} - {entry.key for entry in gbcm.snapshot.ledger}
    np.testing.assert_allclose(more.forget(added).predict(np.zeros((1, 1)))["mean"], before, atol=1e-9)


@pytest.mark.slow
def test_as_errors_vanish_the_fit_of_classes_is_the_plain_one():
    X, y, _ = counted(40, variance=0.0)
    asked, y = replace(KNOWN, likelihood="bernoulli"), (y > 3.0) * 1.0
    plain = GBCM.fit(X, y, replace(asked, noisy_inputs="no"))
    near = GBCM.fit(X, y, asked, companions={"X_variance": np.full(X.shape, 1e-12)})
    grid = np.linspace(-10, 10, 20)[:, None]
    np.testing.assert_allclose(near.predict(grid)["probability"], plain.predict(grid)["probability"], atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["clean", "hmc"])
@pytest.mark.slow
def test_learning_with_errors_predicts_rates_better(way):
    X, y, companions = counted()
    asked = replace(KNOWN, learn=True, set={}, effort="quick", likelihood=None, task="counts")
    gbcm = GBCM.fit(X, y, replace(asked, noisy_inputs=way), companions=companions)
    assert error_of_rate(gbcm) < 0.9 * error_of_rate(GBCM.fit(X, y, replace(asked, noisy_inputs="no")))
    report = gbcm.info()["input_errors"]
    assert "noise_seen" not in report
    assert len(report["densities"]) > 2 if way == "clean" else report["rounds"] == 10


@pytest.mark.nightly
@pytest.mark.slow
def test_the_errors_of_inputs_of_counts_are_learned_where_nobody_tells_them():
    X, y, _ = counted()
    asked = replace(KNOWN, learn=True, set={}, effort="quick", noisy_inputs="hmc")
    (deviation,) = GBCM.fit(X, y, asked).info()["input_errors"]["deviations"]
    assert 0.4 < deviation < 1.2  # it is .77


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"passes": "auto"}, "passes: expected 1 with noisy_inputs clean"),
        ({"approximation": "ep"}, "approximation: expected laplace"),
        ({"likelihood": "svm"}, "likelihood: expected one latent process .* got svm; leave out --noisy-inputs"),
        ({"likelihood": "softmax"}, "likelihood: expected one latent process"),
    ],
)
def test_what_does_not_go_together_is_refused(other, expected):
    with pytest.raises(InvalidOption, match=expected):
        replace(KNOWN, **other)
