"""Posterior of each additive term of f at new points: f(x) = sum_t f_t(x) + h(x)'w, for a kernel k = sum_t k_t.

Given the shared variables v, the term f_t has the columns b_t(x) = L^-1 k_t(X^q, x), which add up to b(x). So

    mean_t = b_t' m,   variance_t = k_t(x, x) - b_t'b_t + b_t' Lambda^-1 b_t

and with the rows around x (`prediction.local.expert`), c_t = cov(f_t(x), f(rows) | v) in place of c:

    mean_t = b_t' m + c_t' T (y - V m),
    variance_t = k_t - b_t'b_t - c_t'T c_t + a_t' Lambda^-1 a_t  with a_t = b_t - V'T c_t

The means add up to the mean of f. The variances do not: terms are correlated a posteriori.
"""

from collections.abc import Iterator
from typing import cast

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.kernels import Kernel
from bcmdist.model.kernels.grammar import parsed, written
from bcmdist.model.model import FIRST_KIND, Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.query import Query
from bcmdist.prediction.latent import BLOCK_ROWS
from bcmdist.prediction.local.committee_at_rows import CommitteeAtRows
from bcmdist.prediction.local.expert import LocalExpert
from bcmdist.prediction.local.uncertain_rows import mean_cross

MEAN = "mean"  # name of the term of the prior mean


def term_names(model: Model) -> tuple[str, ...]:
    """Names of the terms, with names of columns, and of the prior mean last; repeated ones are numbered."""
    shown = kernel_columns(model).shown
    names = [shown(written((term,))) for term in parsed(model.kernel_name)]
    numbered = [
        name if names.count(name) == 1 else f"{name} {names[: k + 1].count(name)}" for k, name in enumerate(names)
    ]
    return (*numbered, MEAN)


def has_terms(model: Model) -> bool:
    """Whether the kernel is a sum of several terms whose posteriors are known."""
    try:
        refuse_terms(model)
    except InvalidOption:
        return False
    return len(model.shared.kernel.terms) > 1


def refuse_terms(model: Model) -> None:
    """Raise `InvalidOption` for a model whose latent function has no separate terms."""
    shared = model.shared
    if shared.kind != FIRST_KIND or shared.residual == "augmented":
        raise InvalidOption(
            f"terms: expected values at query points, whose covariance has terms, got {shared.functions} "
            f"{shared.noun}; fit with --expert bcm or fitc"
        )
    if model.likelihood.coupled:
        raise InvalidOption(
            f"terms: expected independent classes, got {model.likelihood.name}, which couples them; fit with "
            "--likelihood onehot or softmax"
        )


def refuse_uncertain_terms(terms, way) -> None:
    """Raise `InvalidOption` if terms are asked for at uncertain inputs."""
    if terms and way is not None:
        raise InvalidOption("terms: expected exact inputs, got their variances; leave out one of them")


def shares(term_mean) -> np.ndarray:
    """Variance of each term's mean over rows, as a share of the variance of their sum, (T,), from (n, T).

    Shares of terms that vary together do not add up to 1; 0 where predictions do not vary.
    """
    total = term_mean.sum(axis=1).var()
    return term_mean.var(axis=0) / total if total > 0.0 else np.zeros(term_mean.shape[1])


def term_shares(model: Model, belief: Belief) -> dict[str, float]:
    """`shares` of the terms at the query points by the committee, by name; {} where there are not several terms.

    Query points are centres of the training rows.
    """
    if not has_terms(model) or belief.mean.ndim > 1:
        return {}
    mean, _ = committee_terms(model.shared, belief, cast(Query, model.shared).points)
    return dict(zip(term_names(model), shares(mean).tolist(), strict=True))


def term_effect(query: Query, belief: Belief, kernel: Kernel, X, reference) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, (n,) each, of a term at scaled rows X less its mean over the rows `reference`.

    By the committee alone, for one process. Levels of two terms, or of a term and the prior mean, cannot be told apart
    by data; differences within a term can.
    """
    B = linalg.solve_right_transposed(query.factor, np.asfortranarray(kernel.cross(X, query.points)))
    R = linalg.solve_right_transposed(query.factor, np.asfortranarray(kernel.cross(reference, query.points)))
    b = np.zeros((len(X), query.size), order="F")
    b[:, : query.functions] = B - R.mean(axis=0)
    prior = (
        kernel.diagonal(X) - 2.0 * kernel.cross(X, reference).mean(axis=1) + kernel.cross(reference, reference).mean()
    )
    left = kind_of(query).keeps * np.maximum(prior - np.einsum("ij,ij->i", b, b), 0.0)
    return b @ belief.mean, left + _belief_variance(belief, b, 0)


def committee_terms(shared, belief: Belief, X) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of the terms at scaled rows X by the committee alone: (n, T), or (n, T, C)."""
    query = cast(Query, shared)
    starts = range(0, max(len(X), 1), BLOCK_ROWS)
    blocks = [_committee_block(query, belief, X[a : a + BLOCK_ROWS]) for a in starts]
    mean, variance = zip(*blocks, strict=True)
    return np.concatenate(mean), np.concatenate(variance)


def _committee_block(query, belief, X):
    processes = belief.mean.shape[:-1]
    means, variances = [], []
    for B, left in _columns(query, X):
        believed = [_belief_variance(belief, B, c) for c in range(len(belief.factor) if belief.factor.ndim == 3 else 1)]
        means.append(B @ belief.mean.T)
        variances.append(_for_processes([left + one for one in believed], processes))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def local_terms(seen: CommitteeAtRows, expert: LocalExpert, X) -> tuple[np.ndarray, np.ndarray]:
    """As `committee_terms`, with the rows of a local expert."""
    query = cast(Query, seen.shared)
    processes, Q = seen.belief.mean.shape[:-1], query.functions
    kernels = [*query.kernel.terms, None]
    means, variances = [], []
    for kernel, (B, left) in zip(kernels, _columns(query, X), strict=True):
        if kernel is None:  # the mean is a function of v
            c = np.zeros((len(expert.X), len(X)), order="F")
        else:
            c = np.asfortranarray(mean_cross(kernel, expert.X, X, query.inputs) - expert.V[:, :Q] @ B[:, :Q].T)
        means.append(seen.mean(B) + c.T @ expert.pull)
        each = []
        for k, site in enumerate(expert.sites):
            Tc, explained = site.times(c.copy(order="F"))
            each.append(np.maximum(left - explained, 0.0) + seen.belief_variance(B - Tc.T @ expert.V, k))
        variances.append(_for_processes(each, processes))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def _columns(query, X) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Columns b_t (n, S) of each term and of the mean, and var(f_t | v) (n,)."""
    Q, keeps = query.functions, kind_of(query).keeps
    for kernel in query.kernel.terms:
        B = np.zeros((len(X), query.size), order="F")
        B[:, :Q] = linalg.solve_right_transposed(query.factor, np.asfortranarray(kernel.cross(X, query.points)))
        own = kernel.diagonal(X) - np.einsum("ij,ij->i", B[:, :Q], B[:, :Q])
        yield B, keeps * np.maximum(own, 0.0)
    B = np.zeros((len(X), query.size), order="F")
    B[:, Q:] = query.mean.design(X)
    yield B, np.zeros(len(X))


def _belief_variance(belief, B, c):
    factor = belief.factor if belief.factor.ndim == 2 else belief.factor[c]
    A = linalg.solve_right_transposed(factor, B.copy(order="F"))
    return np.einsum("ij,ij->i", A, A)


def _for_processes(each, processes):
    """Variances (n,) of the sites or posteriors as (n,), or (n, C) for C processes."""
    return each[0] if not processes else np.stack(each * (processes[0] // len(each)), axis=1)
