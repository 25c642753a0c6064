"""Updates of a committee by Kalman's step against the sum of messages and the paper's equations."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.committee.online_update import updated
from bcmdist.errors import BcmdistWarning, InvalidOption, NotPositiveDefinite
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import Message, zero, zero_message
from bcmdist.model.likelihoods import Gaussian, Softmax
from oracles import kalman_measurement_form
from problems import class_problem, make_committee, make_kernel, regression_problem, split

NOISE = 0.1
SLICES = split(60, [5, 13, 20, 41])


def made(problem, noise=NOISE):
    """Query set and messages of blocks."""
    likelihood = Gaussian(noise)
    query, messages, _ = make_committee(problem, make_kernel("matern32"), likelihood, SLICES)
    return query, messages


def test_kalman_adds_information(rng):
    query, messages = made(regression_problem(rng))
    one = other = Committee(zero(query.size))
    for number, message in enumerate(messages, 1):
        one, information = updated(one, message, "information", commit=number)
        other, kalman = updated(other, message, "kalman", commit=number)
        np.testing.assert_allclose(other.posterior.mean, one.posterior.mean, atol=1e-10)
        np.testing.assert_allclose(other.posterior.factor, one.posterior.factor, atol=1e-10)
        assert other.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
        assert kalman.innovation == pytest.approx(information.innovation, rel=1e-9)
        assert kalman.gain == pytest.approx(information.gain, rel=1e-9)
        assert (kalman.commit, kalman.rows, kalman.form) == (number, message.rows, "kalman")


def test_belief_is_that_of_the_paper(rng):
    problem = regression_problem(rng)
    query, messages = made(problem)
    designs = [query.design(problem.X[s]) for s in SLICES]
    residuals = [
        query.kernel.cross(problem.X[s], problem.X[s]) - V @ V.T + NOISE * np.eye(len(V))
        for s, V in zip(SLICES, designs, strict=True)
    ]
    committee = Committee(zero(query.size))
    for number, message in enumerate(messages, 1):
        committee, _ = updated(committee, message, "kalman", commit=number)
    mean, S = kalman_measurement_form(np.eye(query.size), designs, residuals, [problem.obs.y[s] for s in SLICES])
    np.testing.assert_allclose(committee.posterior.mean, mean, atol=1e-10)
    L = committee.posterior.factor
    np.testing.assert_allclose(L @ L.T @ S, np.eye(query.size), atol=1e-9)


def test_innovation_and_gain_of_few_rows_are_those_of_their_targets(rng):
    problem = regression_problem(rng)
    query, messages = made(problem)
    before = Committee(messages[1])
    few, s = messages[0], SLICES[0]
    assert few.rows < query.size, "as many directions as rows"
    V, y = query.design(problem.X[s]), problem.obs.y[s]
    R = query.kernel.cross(problem.X[s], problem.X[s]) - V @ V.T + NOISE * np.eye(len(V))
    S, m = np.linalg.inv(np.eye(query.size) + messages[1].precision), before.posterior.mean
    C = V @ S @ V.T + R
    _, update = updated(before, few, "kalman", commit=2)
    assert update.measurements == len(y)
    assert update.innovation == pytest.approx((y - V @ m) @ np.linalg.solve(C, y - V @ m) / len(y), rel=1e-8)
    assert update.gain == pytest.approx(np.trace(S @ V.T @ np.linalg.solve(C, V)) / len(y), rel=1e-8)


def test_processes_with_a_precision_each(rng):
    problem = class_problem(rng)
    likelihood = Softmax(3)
    query, messages, total = make_committee(problem, make_kernel("se"), likelihood, SLICES)
    committee = Committee(zero_message(query, likelihood))
    for number, message in enumerate(messages, 1):
        committee, update = updated(committee, message, "kalman", commit=number)
    np.testing.assert_allclose(committee.total.eta, total.total.eta, atol=1e-9)
    np.testing.assert_allclose(committee.total.precision, total.total.precision, atol=1e-9)
    assert 0.0 < update.gain < 1.0


def test_rows_unlike_those_before_have_a_large_innovation(rng):
    problem = regression_problem(rng)
    query, messages = made(problem)
    before = Committee(sum(messages[1:], zero(query.size)))
    s = SLICES[0]
    shifted = expert_message(query, Gaussian(NOISE), problem.X[s], replace(problem.obs[s], y=problem.obs.y[s] + 5.0))
    _, usual = updated(before, messages[0], "information", commit=2)
    _, unlike = updated(before, shifted, "information", commit=2)
    assert usual.innovation < 3.0 < unlike.innovation


def test_lost_digits_are_reported(rng):
    query, messages = made(regression_problem(rng))
    start, message = Committee(zero(query.size)), messages[-1]
    with pytest.warns(
        BcmdistWarning, match="covariance of commit 1 has an estimated rounding of .* use --update information"
    ):
        imprecise, update = updated(start, message.weighted(1e10), "kalman", commit=1)
    exact, _ = updated(start, message.weighted(1e10), "information", commit=1)
    half = np.linalg.solve(exact.posterior.factor, imprecise.posterior.factor)
    assert 1e-10 < np.abs(half @ half.T - np.eye(query.size)).max() < 10.0 * update.rounding
    with pytest.raises(NotPositiveDefinite, match="far more precise than the belief before; use --update information"):
        updated(start, message.weighted(1e20), "kalman", commit=1)


def test_no_rows_change_nothing(rng):
    query, messages = made(regression_problem(rng))
    before = Committee(messages[0])
    after, update = updated(before, zero(query.size), "kalman", commit=2)
    np.testing.assert_allclose(after.total.precision, before.total.precision, atol=1e-10)
    assert (update.measurements, update.innovation, update.gain) == (0, 0.0, 0.0)


def test_a_precision_that_is_no_matrix_is_refused():
    with pytest.raises(InvalidOption, match="--update: expected an expert whose messages contain a precision matrix"):
        updated(
            Committee(Message(np.zeros(3), np.zeros(5), 0.0, 0)),
            Message(np.zeros(3), np.zeros(5), 0.0, 1),
            "kalman",
            commit=1,
        )
