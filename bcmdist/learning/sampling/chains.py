"""Chains of sampled hyper-parameters as a model directory keeps them: one commit for each."""

import numpy as np

from bcmdist.experts.hmc import Chain
from bcmdist.learning.sampling.convergence import effective_sample_size, split_rhat
from bcmdist.storage.commits import Commit, ModelStore, open_store

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
