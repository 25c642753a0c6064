"""Algorithms of sparse Bayesian learning: maximise the evidence in a prior precision alpha_j per weight.

    w_j ~ N(0, 1/alpha_j),  y ~ N(Phi w, s2):     L = log N(y; 0, s2 I + Phi A^-1 Phi')

At a maximum most alpha_j are infinite, and their functions leave the model (Tipping 2001; thesis, section 2.2; SYSTEMS
T3-T6). All algorithms use only `Sums`. The last functions may be held: always in the model, with precision 1.

    fast      one function at a time: `bcmdist.methods.relevance.sequential`
    em        expectation maximisation: never lowers L, slow
    mackay    fixed point of MacKay (1992): faster, may lower L
    direct    L-BFGS in the logarithms

All but `fast` start with all functions, at a cubic cost per step. All end by dropping functions whose removal does not
lower L.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from bcmdist import linalg
from bcmdist.methods.relevance.sums import Sums

# A function leaves the model where its precision exceeds the information of the data by this factor and L does not
# fall.
OUT = 1e6
# Smallest precision, as a share of the information of the data about the function alone: practically a flat prior, but
# an identity matrix added to precisions of whitened weights is not lost in rounding, here and in committees.
LEAST_SHARE = 1e-12
# Convergence: gain of L in the last step, in nats; and largest number of steps.
LEAST_GAIN = 1e-3
MOST_STEPS = 1000
LARGEST_LOG = 30.0  # largest log change of a parameter by `direct`


@dataclass(frozen=True)
class State:
    """The functions in the model with their precisions, and the noise variance."""

    active: np.ndarray
    """indices of the functions, ascending, (m,)"""
    alpha: np.ndarray
    """(m,)"""
    noise: float


@dataclass(frozen=True)
class Posterior:
    """Posterior of the weights in the model, given sums and a state."""

    mean: np.ndarray
    """mu, (m,)"""
    covariance: np.ndarray
    """Sigma, (m, m)"""
    evidence: float
    """L, in nats"""
    misfit: float
    """|y - Phi mu|^2, weighted"""
    factor: np.ndarray
    """lower Cholesky factor of I + A^-1/2 G A^-1/2 / s2, (m, m)"""

    @property
    def variance(self) -> np.ndarray:
        """Diagonal of Sigma, (m,)."""
        return np.diag(self.covariance)


@dataclass(frozen=True)
class Problem:
    """The sums, and the restrictions on what is learned."""

    sums: Sums
    permanent: int = 0
    """number of functions, the last ones, that stay in the model with precision 1"""
    keep_noise: bool = False
    least: float = LEAST_SHARE
    """smallest precision, as a share of the information of the data about the function alone"""
    floor: float = 0.0
    """absolute lower bound of precisions"""

    def least_alpha(self, noise) -> np.ndarray:
        """Smallest precisions of all functions at a noise variance, (M,)."""
        return np.maximum(self.least * np.diag(self.sums.gram) / noise, self.floor)

    @property
    def free(self) -> int:
        """Number of functions to select from."""
        return len(self.sums.cross) - self.permanent


def posterior(sums: Sums, state: State) -> Posterior:
    """Posterior of the weights in the model (thesis, 2.18-2.21; with N/2 log 2 pi in the last one)."""
    some, s2 = sums.some(state.active), state.noise
    constant = some.rows * np.log(2.0 * np.pi * s2) - some.log_weight
    if not len(state.active):
        nothing = np.empty((0, 0), order="F")
        return Posterior(np.empty(0), nothing, -0.5 * (constant + some.square / s2), some.square, nothing)
    root = 1.0 / np.sqrt(state.alpha)
    H = np.asfortranarray(root[:, None] * some.gram * (root / s2))
    H[np.diag_indices_from(H)] += 1.0
    L = linalg.cholesky(H, name="I + A^-1/2 Phi'Phi A^-1/2 / s2")
    covariance = root[:, None] * linalg.inverse(L) * root
    mean = root * linalg.cholesky_solve(L, root * some.cross / s2)
    fit = some.square - mean @ some.cross
    misfit = some.square - 2.0 * mean @ some.cross + mean @ some.gram @ mean
    return Posterior(mean, covariance, -0.5 * (constant + linalg.log_determinant(L) + fit / s2), max(misfit, 0.0), L)


def sparsity_and_quality(alpha, mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """Sparsity s and quality q of each function in the model given the others (Faul & Tipping 2002), (m,) each.

    s = 1/Sigma_jj - alpha_j and q = mu_j/Sigma_jj, which need no difference of large numbers where s is large.
    """
    return np.maximum(1.0 / variance - alpha, np.finfo(float).tiny), mean / variance


def share(alpha, s, q) -> np.ndarray:
    """Contribution of a function with precision alpha to L, in nats: 1/2 [log alpha/(alpha + s) + q^2/(alpha + s)]."""
    return 0.5 * (np.log(alpha / (alpha + s)) + q**2 / (alpha + s))


def best_alpha(s, q, least=0.0) -> np.ndarray:
    """Precision of largest contribution: s^2/(q^2 - s), at least `least`; infinite where q^2 <= s (thesis, 2.42)."""
    with np.errstate(divide="ignore"):
        return np.where(q**2 > s, np.maximum(s**2 / np.maximum(q**2 - s, 0.0), least), np.inf)


def bounded(problem: Problem, state: State) -> State:
    """Raise precisions to their lower bounds."""
    least = problem.least_alpha(state.noise)[state.active]
    alpha = np.where(state.active < problem.free, np.maximum(state.alpha, least), state.alpha)
    return State(state.active, alpha, state.noise)


# --- Updates of all precisions ---


def em_step(problem: Problem, state: State, found: Posterior) -> State:
    """alpha_j = 1/(mu_j^2 + Sigma_jj), s2 = (misfit + s2 sum gamma)/N (thesis, 2.30-2.31)."""
    return _moved(problem, state, found, 1.0 / (found.mean**2 + found.variance), shrink=False)


def mackay_step(problem: Problem, state: State, found: Posterior) -> State:
    """alpha_j = gamma_j/mu_j^2, s2 = misfit/(N - sum gamma), gamma_j = 1 - alpha_j Sigma_jj (thesis, 2.32)."""
    gamma = np.maximum(1.0 - state.alpha * found.variance, np.finfo(float).tiny)
    alpha = gamma / np.maximum(found.mean**2, np.finfo(float).tiny)
    return _moved(problem, state, found, np.clip(alpha, 1e-100, 1e100), shrink=True)


def _moved(problem, state, found, alpha, *, shrink):
    noise = state.noise if problem.keep_noise else next_noise(problem.sums, state, found, shrink=shrink)
    return bounded(problem, State(state.active, np.where(state.active < problem.free, alpha, state.alpha), noise))


# Least noise variance, as a share of the mean square of the targets: below, the misfit is rounding error.
LEAST_NOISE = 1e-12


def next_noise(sums: Sums, state: State, found: Posterior, *, shrink) -> float:
    """Update of the noise variance from a posterior: MacKay's with `shrink`, otherwise EM's."""
    gamma = float(np.sum(1.0 - state.alpha * found.variance))
    least = LEAST_NOISE * max(sums.square / sums.rows, LEAST_NOISE)
    if shrink:
        return max(found.misfit / max(sums.rows - gamma, 1.0), least)
    return max((found.misfit + state.noise * gamma) / sums.rows, least)


def stepwise(step: Callable[[Problem, State, Posterior], State]) -> Callable[..., State]:
    """Return a learner that repeats an update, starting from all functions, until L converges."""

    def learn(problem: Problem, noise, start: State | None = None) -> State:
        state = _all(problem, noise, start)
        found = posterior(problem.sums, state)
        for _ in range(MOST_STEPS):
            state, before = _without_far_out(problem, step(problem, state, found)), found.evidence
            found = posterior(problem.sums, state)
            if abs(found.evidence - before) < LEAST_GAIN:
                break
        return dropped(problem, state)

    return learn


def _all(problem, noise, start) -> State:
    """State with all functions, at precisions for a total prior variance of 1 (scaled targets), or those of `start`."""
    count = len(problem.sums.cross)
    level = np.trace(problem.sums.gram[: problem.free, : problem.free]) / problem.sums.rows
    alpha = np.where(np.arange(count) < problem.free, level, 1.0)
    if start is not None:
        alpha[start.active], noise = start.alpha, start.noise
    return State(np.arange(count), alpha, noise)


def _without_far_out(problem, state):
    """Drop functions whose precision far exceeds the information of the data."""
    far = state.alpha > OUT * np.diag(problem.sums.gram)[state.active] / state.noise
    keep = ~far | (state.active >= problem.free)
    return State(state.active[keep], state.alpha[keep], state.noise)


def dropped(problem: Problem, state: State) -> State:
    """Drop functions whose removal does not lower L: those of very large precision at once, the others one by one."""
    found = posterior(problem.sums, state)
    s, q = sparsity_and_quality(state.alpha, found.mean, found.variance)
    out = (state.active < problem.free) & (state.alpha > OUT * s) & (q**2 <= s)
    state = State(state.active[~out], state.alpha[~out], state.noise)
    while np.any(state.active < problem.free):
        found = posterior(problem.sums, state)
        loss = share(state.alpha, *sparsity_and_quality(state.alpha, found.mean, found.variance))
        loss[state.active >= problem.free] = np.inf
        worst = int(loss.argmin())
        if loss[worst] > 0.0:
            break
        state = State(np.delete(state.active, worst), np.delete(state.alpha, worst), state.noise)
    return state


# --- Direct optimisation ---


def direct(problem: Problem, noise, start: State | None = None) -> State:
    """L-BFGS in log alpha and log s2 with the gradient (2.22)."""
    start = _all(problem, noise, start)

    def at(x):
        alpha = np.where(start.active < problem.free, start.alpha * np.exp(x[:-1]), start.alpha)
        noise = start.noise * (1.0 if problem.keep_noise else float(np.exp(x[-1])))
        return bounded(problem, State(start.active, alpha, noise))

    def loss(x):
        state = at(x)
        found = posterior(problem.sums, state)
        gradient = evidence_gradient(problem, state, found)
        return -found.evidence, -gradient

    bounds = [(-LARGEST_LOG, LARGEST_LOG)] * (len(start.active) + 1)
    options = {"maxiter": MOST_STEPS, "maxfun": MOST_STEPS}
    x = minimize(loss, np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return dropped(problem, at(x))


def evidence_gradient(problem: Problem, state: State, found: Posterior) -> np.ndarray:
    """dL in log alpha of the functions in the model and in log s2 (thesis, 2.22), (m + 1,); 0 for fixed entries."""
    in_alpha = 0.5 - 0.5 * state.alpha * (found.mean**2 + found.variance)
    in_alpha[state.active >= problem.free] = 0.0
    seen = found.misfit / state.noise + float(np.sum(1.0 - state.alpha * found.variance))
    return np.append(in_alpha, 0.0 if problem.keep_noise else 0.5 * (seen - problem.sums.rows))
