"""The sequential algorithm: add, change or drop the one function that gains most (Tipping & Faul 2003; SYSTEMS T6).

With K = s2 I + Phi A^-1 Phi' of the functions in the model, S_m = phi_m'K^-1 phi_m and Q_m = phi_m'K^-1 y of all
functions tell what each would add. A change of one precision changes K by rank one, and these with it, in O(M^2).
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.methods.relevance.learners import (
    LEAST_GAIN,
    Posterior,
    Problem,
    State,
    apart,
    best_alpha,
    bounded,
    next_noise,
    posterior,
    share,
)

# Share of a function that those in the model leave, below which rounding tells what they leave.
LEAST_LEFT = 1e-9
LEAST_KNOWN = 1e-100  # of a function by all rows, the square of which is a number; rows of classes may say less
MOST_ROUNDS = 10_000
# Changes between two looks at the noise, with all computed again: so many at first, or a share of the functions in the
# model; fewer where they gain other than they seem to, by a share of it. Functions that nearly determine each other
# leave little but rounding after a few changes.
FIRST_LENGTH, LONGEST_SHARE, DOUBT = 10, 0.25, 0.01
# Nats that one of so many rounds must gain for another one: a round may lower the evidence by the noise that follows.
LEAST_ROUND, PATIENCE = 0.1, 20


@dataclass(frozen=True)
class Sight:
    """What all functions say of the rows beside those in the model."""

    state: State
    mean: np.ndarray
    """mu of the weights in the model, (m,)"""
    covariance: np.ndarray
    """Sigma, (m, m)"""
    S: np.ndarray
    """of the M functions to choose from, (M,)"""
    Q: np.ndarray
    """(M,)"""


def fast(problem: Problem, noise, start: State | None = None) -> State:
    """Functions, precisions and noise at which no change of one gains; grows from none, or from a state."""
    held = np.arange(problem.free, problem.free + problem.held)
    state = bounded(problem, start or State(held, np.ones(len(held)), noise))
    found, length = posterior(problem.sums, state), FIRST_LENGTH
    best, highest, stalled = state, found.evidence, 0
    for _ in range(MOST_ROUNDS):
        moved, claimed, settled = _changed_some(problem, afresh(problem, state, found), length)
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
        if (settled and abs(np.log(state.noise / moved.noise)) < LEAST_GAIN) or stalled == PATIENCE:
            break
    return best


def _with_noise(problem, state, found):
    """The state with the noise that follows, and its posterior."""
    if problem.keep_noise:
        return state, found
    noise = next_noise(problem.sums, state, found, shrink=True)
    state = bounded(problem, replace(state, noise=noise))
    return state, posterior(problem.sums, state)


def _changed_some(problem, sight, length):
    """The state after some best changes, the nats that these seem to gain, and whether none is left to gain by."""
    claimed = 0.0
    for _ in range(length):
        j, alpha, gain = best_change(problem, sight)
        if gain < LEAST_GAIN:
            return sight.state, claimed, True
        sight, claimed = changed(problem, sight, j, alpha), claimed + gain
    return sight.state, claimed, False


def afresh(problem: Problem, state: State, found: Posterior) -> Sight:
    """From the posterior of a state."""
    G, b, free, s2 = problem.sums.gram, problem.sums.cross, problem.free, state.noise
    S, Q = np.diag(G)[:free] / s2, b[:free] / s2
    if len(state.active):
        cross = G[state.active, :free]
        T = linalg.solve_lower(found.factor, np.asfortranarray(cross / np.sqrt(state.alpha)[:, None]))
        S, Q = S - np.einsum("ij,ij->j", T, T) / s2**2, Q - found.mean @ cross / s2
    return Sight(state, found.mean, found.covariance, S, Q)


def best_change(problem: Problem, sight: Sight) -> tuple[int, float, float]:
    """The function to change, its new precision (infinite: out), and the nats that this gains."""
    state, G, free = sight.state, problem.sums.gram, problem.free
    inside = state.active[state.active < free]
    m, now = len(inside), np.full(free, np.inf)
    said = np.maximum(LEAST_LEFT * np.diag(G)[:free] / state.noise, LEAST_KNOWN) >= sight.S  # by those in the model
    s, q = np.where(said, 1.0, sight.S), np.where(said, 0.0, sight.Q)
    now[inside] = state.alpha[:m]
    s[inside], q[inside] = (one[:m] for one in apart(state.alpha, sight.mean, np.diag(sight.covariance)))
    best = best_alpha(s, q, problem.least_alpha(state.noise)[:free])
    gain = _shares(best, s, q) - _shares(now, s, q)
    j = int(gain.argmax())
    return j, float(best[j]), float(gain[j])


def _shares(alpha, s, q):
    """As `share`, 0 for what is out."""
    inside = np.isfinite(alpha)
    return np.where(inside, share(np.where(inside, alpha, 1.0), s, q), 0.0)


def changed(problem: Problem, sight: Sight, j, alpha) -> Sight:
    """What is seen once function j has another precision."""
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
        before, said = np.inf, Sigma @ G[state.active, j] / s2
        row[state.active], row[j] = -said, 1.0
        S, Q = sight.S[j], sight.Q[j]
        some, alphas = np.insert(state.active, place, j), np.insert(state.alpha, place, alpha)
        Sigma = _grown(Sigma, said, 1.0 / (alpha + S), place)
    c = G[:free] @ row / s2  # phi_m'K^-1 phi_j
    delta = 1.0 / alpha - 1.0 / before
    t = delta / (1.0 + delta * S)
    return Sight(State(some, alphas, s2), Sigma @ b[some] / s2, Sigma, sight.S - t * c**2, sight.Q - t * Q * c)


def _grown(Sigma, said, variance, place):
    """The covariance with one more weight, whose column goes to a place."""
    m = len(Sigma) + 1
    others, grown = np.delete(np.arange(m), place), np.empty((m, m))
    grown[np.ix_(others, others)] = Sigma + variance * np.outer(said, said)
    grown[place, others] = grown[others, place] = -variance * said
    grown[place, place] = variance
    return grown
