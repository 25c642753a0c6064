import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcmdist.experts.message import Message, zero
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from problems import class_problem, make_committee, make_kernel, regression_problem, split

ROWS = 30
# Rounding of a sum of a dozen matrices of order one.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def assert_same(a, b):
    np.testing.assert_allclose(a.eta, b.eta, **CLOSE)
    np.testing.assert_allclose(a.precision, b.precision, **CLOSE)
    assert a.evidence == pytest.approx(b.evidence, rel=1e-12)
    assert a.rows == b.rows


def assert_inverse(a, b):
    """a + b - b == a, up to what rounding leaves of numbers of the size of b."""
    again = a + b - b
    for found, wanted, gone in ((again.eta, a.eta, b.eta), (again.precision, a.precision, b.precision)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-14 * (1.0 + np.abs(gone).max(initial=0.0)))
    assert again.evidence == pytest.approx(a.evidence, rel=1e-12, abs=1e-14 * (1.0 + abs(b.evidence)))
    assert again.rows == a.rows


@st.composite
def trees(draw, leaves):
    """Any order and any grouping of the leaves, as nested pairs."""
    items = draw(st.permutations(range(leaves)))
    while len(items) > 1:
        k = draw(st.integers(0, len(items) - 2))
        items = [*items[:k], (items[k], items[k + 1]), *items[k + 2 :]]
    return items[0]


def fold(tree, messages):
    return messages[tree] if isinstance(tree, int) else fold(tree[0], messages) + fold(tree[1], messages)


@pytest.mark.parametrize("likelihood", [Gaussian(0.05), Bernoulli()])
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), edges=st.lists(st.integers(0, ROWS), max_size=5))
def test_messages_of_any_partitioning_are_a_commutative_monoid(rng, likelihood, data, edges):
    """Empty partitions and one-row partitions included."""
    make = regression_problem if likelihood.name == "gaussian" else class_problem
    problem = make(np.random.default_rng(1), rows=ROWS, query=6)
    blocks = split(ROWS, sorted(edges))
    _, messages, committee = make_committee(problem, make_kernel("matern32"), likelihood, blocks, mean="constant")
    shared = len(committee.total.eta)
    assert_same(fold(data.draw(trees(len(messages))), messages), committee.total)
    assert committee.total.rows == ROWS
    for message in messages:
        assert_same(message + zero(shared), message)
        assert_inverse(message, committee.total)
        assert_inverse(committee.total, message)
        np.testing.assert_array_equal(message.precision, message.precision.T)
        assert np.linalg.eigvalsh(message.precision).min() > -1e-12


def test_empty_partition_is_zero(rng):
    problem = regression_problem(rng)
    _, (message,), _ = make_committee(problem, make_kernel("se"), Gaussian(0.1), [slice(0, 0)])
    assert_same(message, zero(len(problem.Xq)))


@pytest.mark.parametrize("leading", [(), (3,)])
def test_a_message_is_sent_as_its_lower_triangle(rng, leading):
    A = rng.standard_normal((*leading, 60, 60))
    message = Message(rng.standard_normal((*leading, 60)), A + np.swapaxes(A, -1, -2), -3.5, 17)
    sent = pickle.dumps(message)
    assert len(sent) < 0.55 * message.precision.nbytes + message.eta.nbytes + 500
    again = pickle.loads(sent)
    for name in ("eta", "precision", "evidence", "rows"):
        np.testing.assert_array_equal(getattr(again, name), getattr(message, name))
