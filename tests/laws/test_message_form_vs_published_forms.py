"""The sum of messages against the GBCM paper's formulas and PITC, on well-conditioned problems."""

import numpy as np
import pytest

from bcmdist.experts.expert import laplace_mode
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.prediction.latent import predict_latent
from oracles import (
    committee_by_inverses,
    expert_posterior,
    kalman_measurement_form,
    kalman_posterior_form,
    laplace,
    pitc,
)
from problems import class_problem, make_committee, make_kernel, regression_problem, split

BLOCKS = split(60, [13, 20, 41])
NOISE = 0.1
# The published forms lose digits with the condition number of Kqq, about 1e3 here.
TOLERANCE = 1e-9


@pytest.fixture
def committee(rng):
    """Problem, kernel, and mean and covariance of f^q from the sum of messages."""
    problem, kernel = regression_problem(rng), make_kernel("matern32")
    prior, _, committee = make_committee(problem, kernel, Gaussian(NOISE), BLOCKS)
    assert prior.jitter == 0.0
    belief = committee.posterior
    half = np.linalg.solve(belief.factor, prior.factor.T)
    return problem, kernel, prior.factor @ belief.mean, half.T @ half, prior, committee


def modules(problem, kernel):
    posteriors = [
        expert_posterior(kernel, problem.Xq, problem.X[b], problem.obs.y[b], np.full(b.stop - b.start, NOISE))
        for b in BLOCKS
    ]
    return [m for m, _ in posteriors], [c for _, c in posteriors]


def test_equations_4_and_5(committee):
    problem, kernel, mean, covariance, *_ = committee
    m, c = committee_by_inverses(kernel.cross(problem.Xq, problem.Xq), *modules(problem, kernel))
    np.testing.assert_allclose(mean, m, atol=TOLERANCE)
    np.testing.assert_allclose(covariance, c, atol=TOLERANCE)


def test_kalman_form_of_section_6_2(committee):
    problem, kernel, mean, covariance, *_ = committee
    m, c = kalman_posterior_form(kernel.cross(problem.Xq, problem.Xq), *modules(problem, kernel))
    np.testing.assert_allclose(mean, m, atol=TOLERANCE)
    np.testing.assert_allclose(covariance, c, atol=TOLERANCE)


def test_appendix_b(committee):
    """Equations 14-15 (natural parameters) and the Kalman form over measurements."""
    problem, kernel, mean, covariance, *_ = committee
    Kqq = kernel.cross(problem.Xq, problem.Xq)
    designs = [kernel.cross(problem.X[b], problem.Xq) @ np.linalg.inv(Kqq) for b in BLOCKS]
    residuals = [
        kernel.cross(problem.X[b], problem.X[b]) + NOISE * np.eye(b.stop - b.start) - A @ Kqq @ A.T
        for b, A in zip(BLOCKS, designs, strict=True)
    ]
    ys = [problem.obs.y[b] for b in BLOCKS]
    C = np.linalg.inv(Kqq) + sum(A.T @ np.linalg.solve(R, A) for A, R in zip(designs, residuals, strict=True))
    h = sum(A.T @ np.linalg.solve(R, y) for A, R, y in zip(designs, residuals, ys, strict=True))
    for m, c in [(np.linalg.solve(C, h), np.linalg.inv(C)), kalman_measurement_form(Kqq, designs, residuals, ys)]:
        np.testing.assert_allclose(mean, m, atol=TOLERANCE)
        np.testing.assert_allclose(covariance, c, atol=TOLERANCE)


def test_committee_is_pitc(committee):
    problem, kernel, *_, prior, fitted = committee
    blocks, ys = [problem.X[b] for b in BLOCKS], [problem.obs.y[b] for b in BLOCKS]
    m, v, evidence = pitc(kernel, problem.Xq, blocks, ys, NOISE, problem.Xs)
    mean, variance = predict_latent(prior, fitted.posterior, problem.Xs)
    np.testing.assert_allclose(mean, m, atol=TOLERANCE)
    np.testing.assert_allclose(variance, v, atol=TOLERANCE)
    assert fitted.log_evidence == pytest.approx(evidence, abs=1e-8)


def test_laplace_messages_are_the_paper_s(rng):
    """Section 5.1 and Appendix A (with the corrected covariance): inverses of module posteriors."""
    problem, kernel = class_problem(rng), make_kernel("matern32", variance=2.0)
    prior, messages, _ = make_committee(problem, kernel, Bernoulli(), BLOCKS)
    L, Kqq = prior.factor, kernel.cross(problem.Xq, problem.Xq)
    for b, message in zip(BLOCKS, messages, strict=True):
        K = kernel.cross(problem.X[b], problem.X[b])
        f, w, pseudo = laplace(K, Bernoulli(), problem.obs[b])
        np.testing.assert_allclose(laplace_mode(K, problem.obs[b], Bernoulli()), f, atol=1e-9)
        m, c = expert_posterior(kernel, problem.Xq, problem.X[b], pseudo, 1 / w)
        J = np.linalg.inv(c) - np.linalg.inv(Kqq)
        np.testing.assert_allclose(message.precision, L.T @ J @ L, atol=TOLERANCE)
        np.testing.assert_allclose(message.eta, L.T @ np.linalg.solve(c, m), atol=TOLERANCE)


def test_laplace_evidence_is_additive(rng):
    """Query = all rows and one-row partitions would be exact; here against SYSTEMS I.4 written densely."""
    problem, kernel = class_problem(rng), make_kernel("matern32", variance=2.0)
    _, _, committee = make_committee(problem, kernel, Bernoulli(), BLOCKS)
    Kqq = kernel.cross(problem.Xq, problem.Xq)
    Kq = kernel.cross(problem.X, problem.Xq)
    S = Kq @ np.linalg.solve(Kqq, Kq.T)
    value, pseudo, noise = 0.0, np.zeros(60), np.zeros(60)
    for b in BLOCKS:
        K = kernel.cross(problem.X[b], problem.X[b])
        S[b, b] = K
        f, w, pseudo[b] = laplace(K, Bernoulli(), problem.obs[b])
        noise[b] = 1 / w
        gap = pseudo[b] - f
        normal = -0.5 * (w * gap**2 + np.log(2 * np.pi / w))
        value += (Bernoulli().log_density(problem.obs[b], f) - normal).sum()
    S += np.diag(noise)
    value -= 0.5 * (pseudo @ np.linalg.solve(S, pseudo) + np.linalg.slogdet(S)[1] + 60 * np.log(2 * np.pi))
    assert committee.log_evidence == pytest.approx(value, abs=1e-8)
