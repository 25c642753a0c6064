"""The evidence of a network over partitions, by two rounds per evaluation: for rows that no single worker can hold.

Round 1 sums the messages of the current network, as for the weights of any basis. Round 2 sums each partition's part of
the gradient, given the posterior of the output weights. Workers keep the designs of round 1 for round 2.
"""

from collections.abc import Hashable
from contextlib import contextmanager
from dataclasses import dataclass

from zict import LRU

from bcmdist.experts.message import Message
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.networks.evidence import (
    NOISE,
    DesignedRows,
    Evaluated,
    Evidence,
    Network,
    NetworkShare,
    evaluated,
    posterior,
)
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference, load_array

DESIGN_BYTES = 2**27
_designs: "LRU[Hashable, DesignedRows]" = least_recently_used(DESIGN_BYTES, lambda rows: rows.nbytes)


@dataclass(frozen=True)
class NetworkTrial:
    """A candidate network, its likelihood and the scaling of its inputs."""

    scaling: BlobReference
    inner: BlobReference
    scale: float
    mean: str
    likelihood: OneProcess

    def designed(self, rows) -> DesignedRows:
        """Design of the network at the rows of a partition; cached, so read-only."""
        noise = float(self.likelihood.parameters[NOISE][0])
        name = (self.scaling, self.inner, self.scale, noise, self.mean, rows.digest)
        return get_or_make(_designs, name, lambda: self._designed(rows))

    def _designed(self, rows):
        scaling, inner = load_scaling(self.scaling), load_array(self.inner)
        X, obs = scaling.inputs(rows.X), scaling.observations(rows.obs, self.likelihood.units, rows.X)
        made = DesignedRows(X, obs, Mean(self.mean), len(inner))
        made.fill(Network(inner, self.scale, self.likelihood))
        return made


@dataclass(frozen=True)
class NetworkMessage:
    """Task: the message of a partition about the output weights."""

    trial: NetworkTrial

    def __call__(self, part, rows) -> Message:
        return self.trial.designed(rows).message.weighted(part.weight)


@dataclass(frozen=True)
class NetworkGradient:
    """Task: a partition's part of the gradient, given the posterior from all partitions."""

    trial: NetworkTrial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> NetworkShare:
        belief = load_array(self.mean), load_array(self.covariance)
        return self.trial.designed(rows).gradient(*belief).weighted(part.weight)


@dataclass(frozen=True)
class NetworkDensity:
    """Task: the log density of a partition's rows, given the posterior from other partitions."""

    trial: NetworkTrial
    mean: BlobReference
    covariance: BlobReference

    def __call__(self, part, rows) -> float:
        belief = load_array(self.mean), load_array(self.covariance)
        return part.weight * self.trial.designed(rows).log_density(*belief)


class EvidenceByRounds(Evidence):
    """The evidence over partitions; two rounds per evaluation.

    Parameters
    ----------
    parts, left_out : the partitions but those left out, and those
    """

    def __init__(self, context: TrainingContext, parts, left_out, mean: Mean):
        self.context, self.parts, self.left_out, self.mean = context, list(parts), list(left_out), mean
        self.rows_left_out = sum(part.rows for part in left_out)

    def __call__(self, network, *, whole) -> Evaluated:
        parts = [*self.parts, *self.left_out] if whole else self.parts
        with self._trial(network) as trial:

            def gradient(*belief):
                with self._belief(belief) as moments:
                    return self.context.sum(NetworkGradient(trial, **moments), parts)

            return evaluated(self.context.sum(NetworkMessage(trial), parts), gradient, len(network.inner))

    def density(self, network) -> float:
        with self._trial(network) as trial:
            belief = posterior(self.context.sum(NetworkMessage(trial), self.parts))
            with self._belief(belief) as moments:
                return self.context.sum(NetworkDensity(trial, **moments), self.left_out)

    @contextmanager
    def _trial(self, network):
        with self.context.transient({"inner": network.inner}) as references:
            inner, likelihood = references["inner"], network.likelihood
            yield NetworkTrial(self.context.scaling, inner, network.scale, self.mean.name, likelihood)

    def _belief(self, belief):
        mean, covariance = belief
        return self.context.transient({"mean": mean, "covariance": covariance})
