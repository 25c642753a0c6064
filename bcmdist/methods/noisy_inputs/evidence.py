"""Steps to true inputs, partition by partition, and what rows say of hyper-parameters there (SYSTEMS T23, T24).

In turn: partitions go on from the steps of the round before (`Cleaning`, `Drawing`), and send theirs; given all of
them, the evidence is the sum over partitions of the mean over versions (`VersionsEvidence`; eq. 4.38).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from bcmdist import linalg
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.evidence.local_tasks import Evidence, normal_density
from bcmdist.methods.noisy_inputs.expert import NormalErrors
from bcmdist.methods.noisy_inputs.hmc import STEP, drawn, log_evidence
from bcmdist.methods.noisy_inputs.map_inputs import climbed
from bcmdist.methods.noisy_inputs.posterior import Beliefs, Seen
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

# Of so many rows of a partition one is left out of cleaning, and predicted from as many draws of its input.
LEFT_OUT, LEFT_OUT_DRAWS = 5, 50


@dataclass(frozen=True)
class Versions:
    """Steps to true inputs of partitions by key, (K, n, D) in standard deviations; they add."""

    steps: dict[str, np.ndarray]
    densities: dict[str, float] = field(default_factory=dict)
    """log densities of rows that were left out"""
    lengths: dict[str, float] = field(default_factory=dict)
    """of leapfrog steps, of draws"""

    def __add__(self, other: "Versions") -> "Versions":
        densities, lengths = self.densities | other.densities, self.lengths | other.lengths
        return Versions(self.steps | other.steps, densities, lengths)

    @property
    def density(self) -> float:
        """Of the rows left out of all partitions."""
        return math.fsum(self.densities.values())


@dataclass(frozen=True)
class EvidenceByPartition:
    """Evidences of partitions by key; they add, and in whatever order they came, their total is the same to the bit:
    chains would tell."""

    by_key: dict[str, Evidence]

    def __add__(self, other: "EvidenceByPartition") -> "EvidenceByPartition":
        return EvidenceByPartition(self.by_key | other.by_key)

    @property
    def total(self) -> Evidence:
        """Of all partitions."""
        first, *others = [self.by_key[key] for key in sorted(self.by_key)]
        return sum(others, first)


@dataclass(frozen=True)
class InputTrial:
    """Hyper-parameters on trial, and the steps of all partitions so far."""

    scaling: BlobReference
    errors: NormalErrors
    kernel: Kernel
    mean: str
    likelihood: Likelihood
    steps: BlobReference
    """(K, N, D)"""
    starts: tuple[tuple[str, int], ...]
    """where the rows of partitions begin there, by key"""

    @property
    def beliefs(self) -> Beliefs:
        return Beliefs(self.kernel, Mean(self.mean), self.likelihood)

    def case(self, part, rows) -> tuple[Seen, np.ndarray]:
        """The rows of a partition, and their steps (K, n, D)."""
        scaling, start = load_scaling(self.scaling), dict(self.starts)[part.key]
        obs = scaling.observations(rows.obs, self.likelihood.units)
        seen = Seen(scaling.inputs(rows.X), self.errors.roots(part, rows, scaling), obs)
        return seen, load_array(self.steps)[:, start : start + part.rows]


@dataclass(frozen=True)
class Cleaning:
    """Steps of higher density, and how well rows that are left out are predicted from there."""

    trial: InputTrial
    iterations: int
    seed: int

    def __call__(self, part, rows) -> Versions:
        beliefs, (seen, (steps,)) = self.trial.beliefs, self.trial.case(part, rows)
        kept = kept_rows(part.rows)
        found = np.zeros_like(steps)
        try:
            found[kept] = climbed(beliefs, seen.some(kept), steps[kept], self.iterations)
            density = left_out_density(beliefs, seen, found, self.seed)
        except NotPositiveDefinite:
            density = -np.inf
        return Versions({part.key: found[None]}, {part.key: density})


@dataclass(frozen=True)
class Drawing:
    """Draws of steps, from where the last one of the round before has ended."""

    trial: InputTrial
    count: int
    burn_in: int
    seed: tuple[int, int]
    """of the fit, and the number of the round"""
    lengths: tuple[tuple[str, float], ...]
    """of leapfrog steps at the end of the round before, by key"""

    def __call__(self, part, rows) -> Versions:
        seen, steps = self.trial.case(part, rows)
        seed, length = [*self.seed, part.start], dict(self.lengths).get(part.key, STEP)
        how = {"count": self.count, "burn_in": self.burn_in, "seed": seed, "length": length}
        found = drawn(self.trial.beliefs, seen, steps[-1], **how)
        return Versions({part.key: found.steps}, lengths={part.key: found.length})


@dataclass(frozen=True)
class VersionsEvidence:
    """Log evidence of a partition on its own, the mean over versions of its inputs; failures as of `LocalEvidence`."""

    trial: InputTrial
    left_out: bool
    """whether rows that cleaning leaves out are left out"""

    def __call__(self, part, rows) -> EvidenceByPartition:
        return EvidenceByPartition({part.key: self._of(part, rows)})

    def _of(self, part, rows):
        seen, steps = self.trial.case(part, rows)
        beliefs, kept = self.trial.beliefs, kept_rows(part.rows) if self.left_out else np.ones(part.rows, dtype=bool)
        of_rows = beliefs.kernel, beliefs.mean, beliefs.likelihood
        try:
            found = [local_evidence(*of_rows, X[kept], seen.obs[kept]) for X in seen.at(steps)]
        except NotPositiveDefinite as error:
            return Evidence(0.0, np.zeros(len(beliefs.kernel.theta) + 1), 1, f"{part.key}: {error}")
        values, gradients = zip(*found, strict=True)
        return Evidence(float(np.mean(values)), np.mean(gradients, axis=0), 0)


@dataclass(frozen=True)
class AveragedEvidence:
    """Log evidence of a partition on its own with inputs averaged over (`log_evidence`), without a gradient."""

    trial: InputTrial

    def __call__(self, part, rows) -> EvidenceByPartition:
        seen, _ = self.trial.case(part, rows)
        value = log_evidence(self.trial.beliefs, seen, seed=[self.trial.errors.seed, part.start])
        return EvidenceByPartition({part.key: Evidence(value, np.zeros(0), 0)})


def kept_rows(rows: int) -> np.ndarray:
    """Which rows of a partition cleaning looks at, (n,) of bool."""
    return np.arange(rows) % LEFT_OUT != LEFT_OUT // 2


def left_out_density(beliefs: Beliefs, seen: Seen, steps, seed: int) -> float:
    """Sum over the rows left out of log p(y | the other rows at their steps), averaged over where each may have been.

    By draws of N(u, s), which every kernel allows.
    """
    kept = kept_rows(len(steps))
    gone, some = seen.some(~kept), seen.some(kept)
    if not len(gone.inputs):
        return 0.0
    draws = np.random.default_rng(seed).standard_normal((LEFT_OUT_DRAWS, *gone.inputs.shape))
    mean, variance = _predicted(beliefs, some.at(steps[kept]), some.obs, gone.at(draws).reshape(-1, steps.shape[1]))
    error = beliefs.likelihood.targets(gone.obs) - mean.reshape(LEFT_OUT_DRAWS, -1)
    variance = variance.reshape(LEFT_OUT_DRAWS, -1) + beliefs.likelihood.noise(gone.obs)
    densities = np.logaddexp.reduce(normal_density(error, variance), axis=0) - np.log(LEFT_OUT_DRAWS)
    return float(densities.sum())


def _predicted(beliefs, X, obs, Z):
    """Mean and variance of f at inputs Z given rows (Rasmussen & Williams 2006, eqs. 2.25 and 2.26)."""
    H, h = beliefs.mean.design(X), beliefs.mean.design(Z)
    K = beliefs.kernel.cross(X, X) + H @ H.T
    K[np.diag_indices_from(K)] += beliefs.likelihood.noise(obs)
    L = linalg.cholesky(K, name="covariance of a partition's targets")
    k = beliefs.kernel.cross(X, Z) + H @ h.T
    mean = k.T @ linalg.cholesky_solve(L, beliefs.likelihood.targets(obs))
    known = linalg.solve_lower(L, np.asfortranarray(k))
    prior = beliefs.kernel.diagonal(Z) + np.einsum("ij,ij->i", h, h)
    return mean, np.maximum(prior - np.einsum("ij,ij->j", known, known), 0.0)
