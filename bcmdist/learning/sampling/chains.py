"""Chains of sampled hyper-parameters as a model directory keeps them: one commit for each.

Whether chains have mixed, and how many independent samples they are worth.

The classical formulas (Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, sections 11.4 and 11.5), column
by column, of chains (M, n, P) of equal length, each cut in two halves.
"""

import numpy as np

from bcmdist.experts.hmc import Chain
from bcmdist.storage.commits import Commit, ModelStore, open_store


def split_rhat(chains) -> np.ndarray:
    """Potential scale reduction, (P,): sqrt of pooled over within-chain variance; 1 where chains agree.

    Above about 1.01 to 1.1 the chains have not forgotten where they began.
    """
    halves = _halves(chains)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt(_pooled(halves) / within)


def effective_sample_size(chains) -> np.ndarray:
    """Number of independent samples whose mean would be as exact, (P,).

    M n / (1 + 2 sum_t rho_t), with rho_t from all chains and the sum cut where pairs of neighbours stop being
    positive and falling (Geyer 1992).
    """
    halves = _halves(chains)
    count, length, columns = halves.shape
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    lagged = np.mean([_autocovariance(half) for half in halves], axis=0) * length / (length - 1)
    rho = 1.0 - (within - lagged) / _pooled(halves)
    rho[0] = 1.0
    pairs = rho[: length - length % 2].reshape(-1, 2, columns).sum(axis=1)
    pairs = np.minimum.accumulate(pairs, axis=0)
    pairs[np.logical_or.accumulate(pairs <= 0, axis=0)] = 0.0
    return count * length / np.maximum(2.0 * pairs.sum(axis=0) - 1.0, 1.0 / np.log10(count * length))


def _halves(chains):
    """Both halves of each chain: (M, n, P) -> (2 M, n // 2, P)."""
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def _pooled(chains):
    """Variance of all samples, which does not underestimate where chains disagree, (P,)."""
    length = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    return (length - 1) / length * within + chains.mean(axis=1).var(axis=0, ddof=1)


def _autocovariance(chain):
    """At all lags t, sums over n - t pairs divided by n, (n, P)."""
    n = len(chain)
    spectrum = np.fft.rfft(chain - chain.mean(axis=0), 2 * n, axis=0)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n] / n


FOLDER = "chains"
# Both halves of a chain need a variance.
LEAST_SAMPLES = 4
# Above, chains have not forgotten where they began; a customary number.
LARGEST_RHAT = 1.1


def chain_store(model) -> ModelStore:
    """The commits of a mixture's chains; chain k is commit k + 1."""
    return open_store(f"{model}/{FOLDER}")


def chain_from(commit: Commit) -> Chain:
    """The chain that a commit holds."""
    return Chain(commit.arrays["samples"], commit.arrays["log_density"], commit.facts["acceptance"])


def load_chains(model) -> tuple[list[str], list[Chain]]:
    """Names of the parameters whose logs were sampled, and the chains, of a mixture's directory.

    Raises
    ------
    ModelNotFound
    """
    store = chain_store(model)
    commits = [store.load(number) for number in store.numbers()] or [store.load()]
    return commits[0].facts["names"], [chain_from(commit) for commit in commits]


def mixing(chains: list[Chain]) -> dict[str, float]:
    """`acceptance`, mean of the chains, and of the parameters the largest `rhat` and the least `ess`.

    nan where they do not exist: of chains that are too short, or of one that never moved.
    """
    every = np.array([chain.samples for chain in chains])
    figures = {"acceptance": float(np.mean([chain.acceptance for chain in chains])), "rhat": np.nan, "ess": np.nan}
    if every.shape[1] < LEAST_SAMPLES or not np.ptp(every, axis=1).all():
        return figures
    return figures | {"rhat": float(split_rhat(every).max()), "ess": float(effective_sample_size(every).min())}


def mixing_advice(figures: dict[str, float]) -> str:
    """What figures of `mixing` say about averages over the samples, in words."""
    if figures["rhat"] <= LARGEST_RHAT:
        return f"chains have mixed: R-hat is at most {figures['rhat']:.2f}"
    return (
        f"chains have not mixed: R-hat is expected to be at most {LARGEST_RHAT}, got {figures['rhat']:.2f}; sample "
        "longer (--effort thorough), or with another HMC(step=...), whose acceptance should be near 0.9 or above"
    )
