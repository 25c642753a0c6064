"""Tasks of learning: update each partition's steps to the true inputs, and evaluate the evidence (SYSTEMS T23, T24).

Two kinds of tasks alternate. Partitions update their steps, starting from those of the previous round (`MapTask`,
`SamplingTask`). Given all steps, the evidence is the sum over partitions of its mean over draws (`InputsEvidence`;
eq. 4.38).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from bcmdist import linalg
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.laplace import laplace_mode
from bcmdist.learning.evidence.local_tasks import Evidence
from bcmdist.methods.noisy_inputs.averaged import averaged_evidence
from bcmdist.methods.noisy_inputs.expert import NormalErrors
from bcmdist.methods.noisy_inputs.hmc import STEP, log_evidence, sampled
from bcmdist.methods.noisy_inputs.posterior import NUMERICAL, NoisyRows, Process, maximized
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.model import named_parameters
from bcmdist.prediction.observation import predictive
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
        roots = self.errors.roots(part.data, rows.X, rows.X_variance, scaling)
        noisy = NoisyRows(scaling.inputs(rows.X), roots, obs)
        return noisy, load_array(self.steps)[:, start : start + part.rows]


@dataclass(frozen=True)
class MapTask:
    """Task: steps of higher posterior density, and the predictive density of the left-out rows."""

    trial: InputTrial
    temperature: float
    """of the kept rows, in the search for inputs"""
    iterations: int
    seed: int

    def __call__(self, part, rows) -> InputSteps:
        process, (noisy, (steps,)) = self.trial.process, self.trial.rows_and_steps(part, rows)
        kept = kept_rows(part.rows)
        found = np.zeros_like(steps)
        try:
            tempered = noisy.subset(kept).tempered(self.temperature)
            found[kept] = maximized(process, tempered, steps[kept], self.iterations)
            density = left_out_density(process, noisy, found, self.seed)
        except NUMERICAL:
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
        except NUMERICAL as error:
            return failed(process, f"{part.key}: {error}")
        values, gradients = zip(*found, strict=True)
        return Evidence(float(np.mean(values)), np.mean(gradients, axis=0), 0)


def failed(process: Process, reason: str) -> Evidence:
    """The evidence of a partition that failed numerically."""
    parameters = named_parameters(process.kernel, process.likelihood)
    return Evidence(0.0, np.zeros(sum(map(len, parameters.values()))), 1, reason)


@dataclass(frozen=True)
class AveragedEvidence:
    """Task: log evidence of a single partition (`averaged_evidence`); failures as in `LocalEvidence`."""

    trial: InputTrial

    def __call__(self, part, rows) -> EvidenceByPartition:
        noisy, _ = self.trial.rows_and_steps(part, rows)
        try:
            found = Evidence(*averaged_evidence(self.trial.process, noisy), 0)
        except NUMERICAL as error:
            found = failed(self.trial.process, f"{part.key}: {error}")
        return EvidenceByPartition({part.key: found})


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
    obs = test.obs[np.tile(np.arange(len(test.inputs)), LEFT_OUT_DRAWS)]
    densities = predictive(process.likelihood, mean, variance, obs).log_density(obs).reshape(LEFT_OUT_DRAWS, -1)
    return float(np.sum(np.logaddexp.reduce(densities, axis=0) - np.log(LEFT_OUT_DRAWS)))


def _predicted(process, X, obs, Z):
    """Mean and variance of f at inputs Z given the rows X (Rasmussen & Williams 2006, eqs. 3.21 and 3.24)."""
    H, h, likelihood = process.mean.design(X), process.mean.design(Z), process.likelihood
    K = process.kernel.cross(X, X) + H @ H.T
    f = laplace_mode(K, obs, likelihood)
    root = np.sqrt(likelihood.curvature(obs, f))
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + w^1/2 K w^1/2 of a partition")
    k = process.kernel.cross(X, Z) + H @ h.T
    explained = linalg.solve_lower(L, np.asfortranarray(root[:, None] * k))
    prior = process.kernel.diagonal(Z) + np.einsum("ij,ij->i", h, h)
    variance = np.maximum(prior - np.einsum("ij,ij->j", explained, explained), 0.0)
    return k.T @ likelihood.score(obs, f), variance
