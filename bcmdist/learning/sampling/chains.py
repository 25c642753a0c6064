"""Chains of sampled hyper-parameters: storage, one commit per chain, and convergence diagnostics.

The diagnostics are R-hat and effective sample size (Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, sections
11.4 and 11.5), column by column, of chains (M, n, P) of equal length, each cut into two halves.
"""

import numpy as np

from bcmdist.experts.hmc import Chain
from bcmdist.storage.commits import Commit, ModelStore, open_store


def split_rhat(chains) -> np.ndarray:
    """Potential scale reduction R-hat, (P,): sqrt of pooled over within-chain variance; 1 if the chains agree.

    Above about 1.01 to 1.1 the chains still depend on their starts.
    """
    halves = _halves(chains)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    return np.sqrt(_pooled(halves) / within)


def effective_sample_size(chains) -> np.ndarray:
    """Number of independent samples with the same standard error of the mean, (P,).

    M n / (1 + 2 sum_t rho_t), with rho_t from all chains and the sum truncated where sums of adjacent pairs stop being
    positive and decreasing (Geyer 1992).
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
    """Pooled variance of all samples, (P,); not an underestimate if chains disagree."""
    length = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    return (length - 1) / length * within + chains.mean(axis=1).var(axis=0, ddof=1)


def _autocovariance(chain):
    """Autocovariance (n, P) at all lags t: sums over n - t pairs divided by n."""
    n = len(chain)
    spectrum = np.fft.rfft(chain - chain.mean(axis=0), 2 * n, axis=0)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n] / n


FOLDER = "chains"
# Each half of a chain needs a variance.
LEAST_SAMPLES = 4
# Above this the chains still depend on their starts; a customary number.
LARGEST_RHAT = 1.1


def chain_store(model) -> ModelStore:
    """The store of a mixture's chains; chain k is commit k + 1."""
    return open_store(f"{model}/{FOLDER}")


def chain_from(commit: Commit) -> Chain:
    """Return the chain that is stored in a commit."""
    return Chain(commit.arrays["samples"], commit.arrays["log_density"], commit.facts["acceptance"])


def load_chains(model) -> tuple[list[str], list[Chain]]:
    """Names of the parameters whose logs were sampled, and the chains, from a mixture's model directory.

    Raises
    ------
    ModelNotFound
    """
    store = chain_store(model)
    commits = [store.load(number) for number in store.numbers()] or [store.load()]
    return commits[0].facts["names"], [chain_from(commit) for commit in commits]


def mixing(chains: list[Chain]) -> dict[str, float]:
    """Diagnostics of chains: `acceptance` (mean), `rhat` and `ess` (worst parameter).

    `rhat` and `ess` are nan for chains that are too short, or if a parameter of a chain never moved.
    """
    every = np.array([chain.samples for chain in chains])
    figures = {"acceptance": float(np.mean([chain.acceptance for chain in chains])), "rhat": np.nan, "ess": np.nan}
    if every.shape[1] < LEAST_SAMPLES or not np.ptp(every, axis=1).all():
        return figures
    return figures | {"rhat": float(split_rhat(every).max()), "ess": float(effective_sample_size(every).min())}


def mixing_advice(figures: dict[str, float]) -> str:
    """Return advice in words on whether averages over the samples can be trusted, from figures of `mixing`."""
    if figures["rhat"] <= LARGEST_RHAT:
        return f"chains have mixed: R-hat is at most {figures['rhat']:.2f}"
    return (
        f"chains have not mixed: R-hat is expected to be at most {LARGEST_RHAT}, got {figures['rhat']:.2f}; sample "
        "longer (--effort thorough), or in Python with another HMC(step=...), for an acceptance near 0.9 or above"
    )
