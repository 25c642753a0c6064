"""Tasks of learning: update each partition's steps to the true inputs, and evaluate the evidence (SYSTEMS T23, T24).

Two kinds of tasks alternate. Partitions update their steps, starting from those of the previous round (`MapTask`,
`SamplingTask`). Given all steps, the evidence is the sum over partitions of its mean over draws (`InputsEvidence`;
eq. 4.38).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from bcmdist import linalg
from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.evidence.local_tasks import Evidence
from bcmdist.learning.left_out.density import normal_density
from bcmdist.methods.noisy_inputs.expert import NormalErrors
from bcmdist.methods.noisy_inputs.hmc import STEP, log_evidence, sampled
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process, maximized
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.storage.commits import BlobReference, load_array

# One row in `LEFT_OUT` is excluded from the search for inputs, and predicted from `LEFT_OUT_DRAWS` draws of its input.
LEFT_OUT, LEFT_OUT_DRAWS = 5, 50


@dataclass(frozen=True)
class InputSteps:
    """Steps to the true inputs by partition key, (K, n, D) in standard deviations; objects with disjoint keys add."""

    by_key: dict[str, np.ndarray]
    densities: dict[str, float] = field(default_factory=dict)
    """log predictive densities of the left-out rows, by key"""
    lengths: dict[str, float] = field(default_factory=dict)
    """leapfrog step lengths where inputs are sampled, by key"""

    def __add__(self, other: "InputSteps") -> "InputSteps":
        densities, lengths = self.densities | other.densities, self.lengths | other.lengths
        return InputSteps(self.by_key | other.by_key, densities, lengths)

    @property
    def density(self) -> float:
        """Log predictive density of the left-out rows of all partitions."""
        return math.fsum(self.densities.values())


@dataclass(frozen=True)
class EvidenceByPartition:
    """Evidences by partition key; objects add.

    The total is summed in a fixed order, so it is the same to the last bit: Markov chains would amplify a difference.
    """

    by_key: dict[str, Evidence]

    def __add__(self, other: "EvidenceByPartition") -> "EvidenceByPartition":
        return EvidenceByPartition(self.by_key | other.by_key)

    @property
    def total(self) -> Evidence:
        """Sum over all partitions."""
        first, *others = [self.by_key[key] for key in sorted(self.by_key)]
        return sum(others, first)


@dataclass(frozen=True)
class InputTrial:
    """Candidate hyper-parameters, and the current steps of all partitions."""

    scaling: BlobReference
    errors: NormalErrors
    kernel: Kernel
    mean: str
    likelihood: Likelihood
    steps: BlobReference
    """(K, N, D)"""
    starts: tuple[tuple[str, int], ...]
    """first row of each partition in `steps`, by key"""

    @property
    def process(self) -> Process:
        return Process(self.kernel, Mean(self.mean), self.likelihood)

    def rows_and_steps(self, part, rows) -> tuple[NoisyRows, np.ndarray]:
        """The rows of a partition, and their steps (K, n, D)."""
        scaling, start = load_scaling(self.scaling), dict(self.starts)[part.key]
        obs = scaling.observations(rows.obs, self.likelihood.units, rows.X)
        noisy = NoisyRows(scaling.inputs(rows.X), self.errors.roots(part, rows, scaling), obs)
        return noisy, load_array(self.steps)[:, start : start + part.rows]


@dataclass(frozen=True)
class MapTask:
    """Task: steps of higher posterior density, and the predictive density of the left-out rows."""

    trial: InputTrial
    iterations: int
    seed: int

    def __call__(self, part, rows) -> InputSteps:
        process, (noisy, (steps,)) = self.trial.process, self.trial.rows_and_steps(part, rows)
        kept = kept_rows(part.rows)
        found = np.zeros_like(steps)
        try:
            found[kept] = maximized(process, noisy.subset(kept), steps[kept], self.iterations)
            density = left_out_density(process, noisy, found, self.seed)
        except NotPositiveDefinite:
            density = -np.inf
        return InputSteps({part.key: found[None]}, {part.key: density})


@dataclass(frozen=True)
class SamplingTask:
    """Task: draws of steps, starting from the last draw of the previous round."""

    trial: InputTrial
    count: int
    burn_in: int
    seed: tuple[int, int]
    """seed of the fit, and number of the round"""
    lengths: tuple[tuple[str, float], ...]
    """leapfrog step lengths at the end of the previous round, by key"""

    def __call__(self, part, rows) -> InputSteps:
        noisy, steps = self.trial.rows_and_steps(part, rows)
        seed, length = [*self.seed, part.start], dict(self.lengths).get(part.key, STEP)
        how = {"count": self.count, "burn_in": self.burn_in, "seed": seed, "length": length}
        found = sampled(self.trial.process, noisy, steps[-1], **how)
        return InputSteps({part.key: found.steps}, lengths={part.key: found.length})


@dataclass(frozen=True)
class InputsEvidence:
    """Task: log evidence of a single partition, averaged over draws of its inputs; failures as in `LocalEvidence`."""

    trial: InputTrial
    left_out: bool
    """whether to exclude the left-out rows of `MapTask`"""

    def __call__(self, part, rows) -> EvidenceByPartition:
        return EvidenceByPartition({part.key: self._of(part, rows)})

    def _of(self, part, rows):
        noisy, steps = self.trial.rows_and_steps(part, rows)
        process, kept = self.trial.process, kept_rows(part.rows) if self.left_out else np.ones(part.rows, dtype=bool)
        of_rows = process.kernel, process.mean, process.likelihood
        try:
            found = [local_evidence(*of_rows, X[kept], noisy.obs[kept]) for X in noisy.at(steps)]
        except NotPositiveDefinite as error:
            return Evidence(0.0, np.zeros(len(process.kernel.theta) + 1), 1, f"{part.key}: {error}")
        values, gradients = zip(*found, strict=True)
        return Evidence(float(np.mean(values)), np.mean(gradients, axis=0), 0)


@dataclass(frozen=True)
class IntegratedEvidence:
    """Task: log evidence of a single partition, integrated over its inputs (`log_evidence`), without a gradient."""

    trial: InputTrial

    def __call__(self, part, rows) -> EvidenceByPartition:
        noisy, _ = self.trial.rows_and_steps(part, rows)
        value = log_evidence(self.trial.process, noisy, seed=[self.trial.errors.seed, part.start])
        return EvidenceByPartition({part.key: Evidence(value, np.zeros(0), 0)})


def kept_rows(rows: int) -> np.ndarray:
    """Mask of the rows of a partition that are not left out, (n,) of bool."""
    return np.arange(rows) % LEFT_OUT != LEFT_OUT // 2


def left_out_density(process: Process, noisy: NoisyRows, steps, seed: int) -> float:
    """Sum over left-out rows of log p(y | the other rows at their steps), averaged over draws N(u, s) of each input."""
    kept = kept_rows(len(steps))
    test, training = noisy.subset(~kept), noisy.subset(kept)
    if not len(test.inputs):
        return 0.0
    draws = np.random.default_rng(seed).standard_normal((LEFT_OUT_DRAWS, *test.inputs.shape))
    mean, variance = _predicted(
        process, training.at(steps[kept]), training.obs, test.at(draws).reshape(-1, steps.shape[1])
    )
    error = process.likelihood.targets(test.obs) - mean.reshape(LEFT_OUT_DRAWS, -1)
    variance = variance.reshape(LEFT_OUT_DRAWS, -1) + process.likelihood.noise(test.obs)
    densities = np.logaddexp.reduce(normal_density(error, variance), axis=0) - np.log(LEFT_OUT_DRAWS)
    return float(densities.sum())


def _predicted(process, X, obs, Z):
    """Mean and variance of f at inputs Z given the rows X (Rasmussen & Williams 2006, eqs. 2.25 and 2.26)."""
    H, h = process.mean.design(X), process.mean.design(Z)
    K = process.kernel.cross(X, X) + H @ H.T
    K[np.diag_indices_from(K)] += process.likelihood.noise(obs)
    L = linalg.cholesky(K, name="covariance of a partition's targets")
    k = process.kernel.cross(X, Z) + H @ h.T
    mean = k.T @ linalg.cholesky_solve(L, process.likelihood.targets(obs))
    explained = linalg.solve_lower(L, np.asfortranarray(k))
    prior = process.kernel.diagonal(Z) + np.einsum("ij,ij->i", h, h)
    return mean, np.maximum(prior - np.einsum("ij,ij->j", explained, explained), 0.0)
