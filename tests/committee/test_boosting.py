import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.errors import UnsupportedTarget
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from oracles import committee_by_inverses, expert_posterior
from problems import assert_same_committee, make_kernel, split
from published import boosting

NOISE = 0.5


def draw(rng, rows):
    """Two classes about a wavy line, with one label in ten flipped."""
    X = rng.uniform(-2, 2, (rows, 2))
    y = np.where(X[:, 1] > np.sin(2 * X[:, 0]), 1.0, -1.0)
    return X, np.where(rng.uniform(size=rows) < 0.1, -y, y)


@pytest.fixture
def query(rng):
    return prepare(rng.uniform(-2, 2, (30, 2)), kernel=make_kernel("se"), mean=Mean("zero"))


@pytest.fixture
def parts(rng):
    X, y = draw(rng, 200)
    assert y.shape == (200,)
    return [(X[rows], y[rows]) for rows in split(200, [50, 100, 150])]


def plain_committee(query, parts):
    messages = [expert_message(query, Gaussian(NOISE), X, unweighted(y)) for X, y in parts]
    return Committee(sum(messages, zero(query.size)))


def training_error(query, mean, parts):
    wrong = [boosting.decide(boosting.output(query, mean, X)) != y for X, y in parts]
    return np.concatenate(wrong).mean()


def test_weights_are_those_of_gentle_adaboost():
    y, F = np.array([1.0, -1.0, 1.0, -1.0]), np.array([0.7, 0.7, -2.0, -2.0])
    np.testing.assert_allclose(boosting.boosting_weights(y, F), np.exp([-0.7, 0.7, 2.0, -2.0]), rtol=1e-15)


def test_weights_stay_within_their_bounds():
    """Outputs whose exponentials would overflow included."""
    weights = boosting.boosting_weights(np.array([1.0, 1.0, -1.0]), np.array([1e4, -1e4, 8.0]))
    np.testing.assert_allclose(weights, [1e-3, 1e3, 1e3], rtol=1e-12)


def test_first_round_is_the_plain_committee(query, parts):
    plain = plain_committee(query, parts[:1])
    assert_same_committee(boosting.boost_by_committee(query, NOISE, parts[:1]), plain, tolerance=1e-14)
    summed = boosting.boost_by_addition(query, NOISE, parts[:1])
    np.testing.assert_allclose(summed, plain.posterior.mean, rtol=1e-12)


def test_with_weights_of_one_boosting_is_the_plain_committee(query, parts, monkeypatch):
    monkeypatch.setattr(boosting, "boosting_weights", lambda y, output: np.ones(len(y)))
    plain, boosted = plain_committee(query, parts), boosting.boost_by_committee(query, NOISE, parts)
    assert_same_committee(boosted, plain, tolerance=1e-14)
    outputs = predict_latent(query, plain.posterior, parts[0][0])[0]
    np.testing.assert_array_equal(
        boosting.decide(boosting.output(query, boosted.posterior.mean, parts[0][0])), boosting.decide(outputs)
    )


def test_second_round_is_eq_6_with_weighted_noise(query, parts):
    """Dense: psi = noise / w on the second part, w from the first part's expert, combined by eqs. 4-5."""
    (X1, y1), (X2, y2) = parts[:2]
    kernel, Xq = query.kernel, query.points
    Kqq = kernel.cross(Xq, Xq)
    first = expert_posterior(kernel, Xq, X1, y1, np.full(50, NOISE))
    F = kernel.cross(X2, Xq) @ np.linalg.solve(Kqq, first[0])  # eq. 10
    second = expert_posterior(kernel, Xq, X2, y2, NOISE * np.exp(y2 * F))
    mean, _ = committee_by_inverses(Kqq, *zip(first, second, strict=True))
    committee = boosting.boost_by_committee(query, NOISE, parts[:2])
    # inverses of a covariance with condition number 1e8 or so
    np.testing.assert_allclose(query.factor @ committee.posterior.mean, mean, atol=1e-5)
    added = boosting.boost_by_addition(query, NOISE, parts[:2])
    np.testing.assert_allclose(query.factor @ added, first[0] + second[0], atol=1e-5)


def test_boosting_learns(query, parts):
    """Chance is one half, flipped labels leave one in ten at best; and addition may go on over the same rows."""
    by_committee = training_error(query, boosting.boost_by_committee(query, NOISE, parts).posterior.mean, parts)
    by_addition = [
        training_error(query, boosting.boost_by_addition(query, NOISE, parts * rounds), parts) for rounds in (1, 5)
    ]
    assert by_committee < 0.25
    assert max(by_addition) < 0.25


def test_members_do_not_depend_on_rows_of_later_ones(query, parts):
    """Rounds are sequential: a prefix of the parts gives a prefix of the committee."""
    prefix = boosting.boost_by_committee(query, NOISE, parts[:3])
    whole = boosting.boost_by_committee(query, NOISE, parts)
    X, y = parts[3]
    weight = boosting.boosting_weights(y, boosting.output(query, prefix.posterior.mean, X))
    assert np.ptp(weight) > 0.5
    last = expert_message(query, Gaussian(NOISE), X, boosting.Observations(y, weight))
    assert_same_committee(prefix.absorb(last), whole, tolerance=1e-12)


def test_no_parts_and_no_rows(query):
    assert boosting.boost_by_committee(query, NOISE, []).total.rows == 0
    empty = (np.zeros((0, 2)), np.zeros(0))
    np.testing.assert_array_equal(boosting.boost_by_addition(query, NOISE, [empty]), np.zeros(30))
    np.testing.assert_array_equal(boosting.decide(np.array([-1.0, 0.0, 2.0])), [-1.0, 1.0, 1.0])


def test_labels_are_checked(query, parts):
    X, _ = parts[0]
    with pytest.raises(UnsupportedTarget, match=r"expected labels \+1 and -1, got 0.0; recode"):
        boosting.boost_by_committee(query, NOISE, [(X, np.zeros(50))])
