"""Whether chains have mixed, and how many independent samples they are worth.

The classical formulas (Gelman et al., "Bayesian Data Analysis", 3rd ed. 2013, sections 11.4 and 11.5), column
by column, of chains (M, n, P) of equal length, each cut in two halves.
"""

import numpy as np


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
