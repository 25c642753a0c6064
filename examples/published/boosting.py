"""Boosting a committee of regression experts on class labels +1 and -1 (GBCM paper, section 6.9).

Gentle AdaBoost: each member fits the labels with the weights `exp(-y F)` of the current committee's output F, so that
rows which the committee gets wrong count more; a weight divides the noise variance of its row (eq. 6 with
Psi = diag(noise / w_i)). Members are combined as messages or by adding their outputs; the class is the sign.

Round t needs the committee of round t - 1: boosting is sequential where everything else here is parallel. The paper
found no significant improvement over the plain committee, as Gaussian processes are not weak learners.
"""

from collections.abc import Iterable

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.errors import UnsupportedTarget
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.shared.query import Query

# A row far on the right side must not vanish (its noise would overflow) and one far on the wrong side must not
# silence all others; the paper does not bound the weights, the bounds are ours (SYSTEMS G17).
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-3, 1e3


def boosting_weights(y, output) -> np.ndarray:
    """`exp(-y F)` within the bounds, (n,), for labels y and committee outputs F (n,)."""
    if np.any(np.abs(y) != 1):
        raise UnsupportedTarget(
            f"boosting: expected labels +1 and -1, got {np.asarray(y)[np.abs(y) != 1][0]}; recode the classes"
        )
    return np.exp(np.clip(-y * output, np.log(SMALLEST_WEIGHT), np.log(LARGEST_WEIGHT)))


def boost_by_committee(query: Query, noise, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> Committee:
    """Members are experts of one committee: each message has the weights of the committee before it.

    Each part (X (n, D), y (n,)) is a member; rows must not appear in two parts, as they would be absorbed twice. With
    all weights 1 this is the plain committee of regression on +1 and -1 (section 6.5).
    """
    committee = Committee(zero(query.size))
    for X, y in parts:
        weight = boosting_weights(y, output(query, committee.posterior.mean, X))
        committee = committee.absorb(expert_message(query, Gaussian(noise), X, Observations(y, weight)))
    return committee


def boost_by_addition(query: Query, noise, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Sum of the members' outputs, as the mean (S,) of the shared variables for `output`.

    Each member is a Gaussian process of its own; parts may repeat rows, as rounds over the same data do. The sum
    is a discriminant and no posterior: it has no variance.
    """
    total = np.zeros(query.size)
    for X, y in parts:
        weight = boosting_weights(y, output(query, total, X))
        member = Committee(expert_message(query, Gaussian(noise), X, Observations(y, weight)))
        total = total + member.posterior.mean
    return total


def output(query: Query, mean, X) -> np.ndarray:
    """F at the rows of X (n, D) for a mean (S,) of the shared variables: b(x)' mean, (n,)."""
    return query.design(X) @ mean


def decide(outputs) -> np.ndarray:
    """Class +1 or -1 by the sign of the outputs, +1 where they are zero."""
    return np.where(outputs >= 0, 1.0, -1.0)
