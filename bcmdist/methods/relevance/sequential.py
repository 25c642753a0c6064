"""The sequential algorithm: add, change or drop the function with the largest gain (Tipping & Faul 2003; SYSTEMS T6).

With K = s2 I + Phi A^-1 Phi' of the functions in the model, S_m = phi_m'K^-1 phi_m and Q_m = phi_m'K^-1 y give the gain
of every function. A change of one precision is a rank-one change of K, and updates S and Q in O(M^2).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.methods.relevance.learners import (
    LEAST_GAIN,
    Posterior,
    Problem,
    State,
    best_alpha,
    bounded,
    direct,
    em_step,
    mackay_step,
    next_noise,
    posterior,
    share,
    sparsity_and_quality,
    stepwise,
)

# Share of a function left unexplained by those in the model, below which the remainder is rounding.
LEAST_LEFT = 1e-9
LEAST_EXPLAINED = 1e-100  # bound of the information on a function, whose square does not underflow
MOST_ROUNDS = 10_000
# Changes between two exact recomputations with an update of the noise: initially, and as a share of the functions in
# the model. Fewer where the true gain differs from the sum of the predicted gains by this share: with nearly dependent
# functions rounding errors grow within a few changes.
FIRST_LENGTH, LONGEST_SHARE, DOUBT = 10, 0.25, 0.01
# Smallest gain, in nats, and rounds without such a gain before stopping: the noise update of a round may lower L.
LEAST_ROUND, PATIENCE = 0.1, 20


@dataclass(frozen=True)
class Sight:
    """Statistics of all functions given those in the model."""

    state: State
    mean: np.ndarray
    """mu of the weights in the model, (m,)"""
    covariance: np.ndarray
    """Sigma, (m, m)"""
    S: np.ndarray
    """S of the M functions to select from, (M,)"""
    Q: np.ndarray
    """Q of these functions, (M,)"""


def fast(problem: Problem, noise, start: State | None = None) -> State:
    """Functions, precisions and noise at which no single change gains; starts from none, or from a state."""
    held = np.arange(problem.free, problem.free + problem.permanent)
    state = bounded(problem, start or State(held, np.ones(len(held)), noise))
    found, length = posterior(problem.sums, state), FIRST_LENGTH
    best, highest, stalled = state, found.evidence, 0
    for _ in range(MOST_ROUNDS):
        moved, claimed, converged = _changed_some(problem, afresh(problem, state, found), length)
        after = posterior(problem.sums, moved)
        gained = after.evidence - found.evidence
        true = bool(abs(gained - claimed) <= DOUBT * claimed + LEAST_GAIN)
        if not true and length > 1:
            length = max(1, length // 4)
            continue
        if not true and gained < LEAST_GAIN:
            break
        length = min(2 * length, max(FIRST_LENGTH, int(LONGEST_SHARE * len(moved.active))))
        state, found = _with_noise(problem, moved, after)
        stalled = 0 if found.evidence > highest + LEAST_ROUND else stalled + 1
        if found.evidence > highest:
            best, highest = state, found.evidence
        if (converged and abs(np.log(state.noise / moved.noise)) < LEAST_GAIN) or stalled == PATIENCE:
            break
    return best


def _with_noise(problem, state, found):
    """The state with an updated noise variance, and its posterior."""
    if problem.keep_noise:
        return state, found
    noise = next_noise(problem.sums, state, found, shrink=True)
    state = bounded(problem, replace(state, noise=noise))
    return state, posterior(problem.sums, state)


def _changed_some(problem, sight, length):
    """State after up to `length` best changes, their claimed gain in nats, and whether no further change gains."""
    claimed = 0.0
    for _ in range(length):
        j, alpha, gain = best_change(problem, sight)
        if gain < LEAST_GAIN:
            return sight.state, claimed, True
        sight, claimed = changed(problem, sight, j, alpha), claimed + gain
    return sight.state, claimed, False


def afresh(problem: Problem, state: State, found: Posterior) -> Sight:
    """Compute the statistics from the posterior of a state."""
    G, b, free, s2 = problem.sums.gram, problem.sums.cross, problem.free, state.noise
    S, Q = np.diag(G)[:free] / s2, b[:free] / s2
    if len(state.active):
        cross = G[state.active, :free]
        T = linalg.solve_lower(found.factor, np.asfortranarray(cross / np.sqrt(state.alpha)[:, None]))
        S, Q = S - np.einsum("ij,ij->j", T, T) / s2**2, Q - found.mean @ cross / s2
    return Sight(state, found.mean, found.covariance, S, Q)


def best_change(problem: Problem, sight: Sight) -> tuple[int, float, float]:
    """The function to change, its new precision (infinite: drop), and the gain in nats."""
    state, G, free = sight.state, problem.sums.gram, problem.free
    inside = state.active[state.active < free]
    m, now = len(inside), np.full(free, np.inf)
    explained = np.maximum(LEAST_LEFT * np.diag(G)[:free] / state.noise, LEAST_EXPLAINED) >= sight.S  # explained
    s, q = np.where(explained, 1.0, sight.S), np.where(explained, 0.0, sight.Q)
    now[inside] = state.alpha[:m]
    s[inside], q[inside] = (one[:m] for one in sparsity_and_quality(state.alpha, sight.mean, np.diag(sight.covariance)))
    best = best_alpha(s, q, problem.least_alpha(state.noise)[:free])
    gain = _shares(best, s, q) - _shares(now, s, q)
    j = int(gain.argmax())
    return j, float(best[j]), float(gain[j])


def _shares(alpha, s, q):
    """As `share`, and 0 for functions out of the model."""
    inside = np.isfinite(alpha)
    return np.where(inside, share(np.where(inside, alpha, 1.0), s, q), 0.0)


def changed(problem: Problem, sight: Sight, j, alpha) -> Sight:
    """Update the statistics for a new precision of function j."""
    state, Sigma, s2 = sight.state, sight.covariance, sight.state.noise
    G, b, free = problem.sums.gram, problem.sums.cross, problem.free
    place, row = int(np.searchsorted(state.active, j)), np.zeros(len(problem.sums.cross))
    if place < len(state.active) and state.active[place] == j:
        before, column, variance = state.alpha[place], Sigma[:, place], Sigma[place, place]
        row[state.active] = before * column
        S, Q = before - before**2 * variance, before * sight.mean[place]
        if np.isfinite(alpha):
            some, Sigma = state.active, Sigma - np.outer(column, column / (variance + 1.0 / (alpha - before)))
            alphas = np.where(some == j, alpha, state.alpha)
        else:
            some, alphas = np.delete(state.active, place), np.delete(state.alpha, place)
            Sigma = np.delete(np.delete(Sigma - np.outer(column, column / variance), place, 0), place, 1)
    else:
        before, projected = np.inf, Sigma @ G[state.active, j] / s2
        row[state.active], row[j] = -projected, 1.0
        S, Q = sight.S[j], sight.Q[j]
        some, alphas = np.insert(state.active, place, j), np.insert(state.alpha, place, alpha)
        Sigma = _grown(Sigma, projected, 1.0 / (alpha + S), place)
    c = G[:free] @ row / s2  # phi_m'K^-1 phi_j
    delta = 1.0 / alpha - 1.0 / before
    t = delta / (1.0 + delta * S)
    return Sight(State(some, alphas, s2), Sigma @ b[some] / s2, Sigma, sight.S - t * c**2, sight.Q - t * Q * c)


def _grown(Sigma, column, variance, place):
    """The covariance with one more weight, inserted at `place`."""
    m = len(Sigma) + 1
    others, grown = np.delete(np.arange(m), place), np.empty((m, m))
    grown[np.ix_(others, others)] = Sigma + variance * np.outer(column, column)
    grown[place, others] = grown[others, place] = -variance * column
    grown[place, place] = variance
    return grown


# Called with a problem, an initial noise variance and optionally a state to start from.
Learner = Callable[..., State]
UPDATES: dict[str, Learner] = {
    "fast": fast,
    "em": stepwise(em_step),
    "mackay": stepwise(mackay_step),
    "direct": direct,
}
