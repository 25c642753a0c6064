"""Gaussian errors of inputs as part of the model, and the expert for rows with such errors.

Rows whose inputs are one of several equally likely draws have a message (SYSTEMS T23, T24). Given the draw X_k of the
inputs, message and prior give the shared variables the posterior N(m_k, C_k). The mixture over draws has the moments

    m = mean m_k,    C = mean (C_k + m_k m_k') - m m'

and the message that turns the prior N(0, I) into these moments has precision C^-1 - I and eta = C^-1 m. A single draw
gives its own message. Where draws disagree by more than the prior variance there is no information: variances are
limited to 1.

The evidence of the prior with this message is the mean of log p(y | X_k) (eq. 4.38). The message of a draw is that of
exact inputs: for likelihoods that are not Gaussian, linearised at the mode of the rows at the draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from bcmdist import linalg
from bcmdist.committee.record import Record
from bcmdist.experts.contributions import Contribution, densities_of
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import Message
from bcmdist.methods.noisy_inputs.averaged import averaged_message
from bcmdist.methods.noisy_inputs.hmc import sampled
from bcmdist.methods.noisy_inputs.posterior import NOISE, NoisyRows, Process, map_steps
from bcmdist.model.input_errors import InputErrors
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Factored, factored
from bcmdist.model.targets import model_observations
from bcmdist.storage.arrays import check_array
from bcmdist.storage.commits import BlobReference, Reference, open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.fields import Count, CountFromOne, NotNegative, Number, Positive, damaged


def matched(messages: Sequence[Message]) -> Message:
    """The moment-matched message of several equally likely ones, for a single process."""
    if len(messages) == 1:
        return messages[0]
    process = [factored(one.eta, one.precision) for one in messages]
    means = np.array([belief.mean for belief in process])
    mean = means.mean(axis=0)
    covariance = np.mean([linalg.inverse(belief.factor) for belief in process], axis=0)
    covariance += linalg.gram(means - mean) / len(means)
    variance, axes = np.linalg.eigh(covariance)
    precision = 1.0 / np.minimum(variance, 1.0)
    along = axes.T @ mean
    evidence = np.mean([_log_evidence(*each) for each in zip(messages, process, strict=True)])
    correction = 0.5 * (np.log(precision).sum() - precision @ along**2)
    information = linalg.gram((axes * np.sqrt(precision - 1.0)).T)
    return Message(axes @ (precision * along), information, float(evidence + correction), messages[0].rows)


def _log_evidence(message: Message, belief: Factored) -> float:
    """log p(y) of one message with the prior."""
    return float(message.evidence + 0.5 * (message.eta @ belief.mean - belief.log_determinant))


CLEAN, HMC = WAYS = "clean", "hmc"

# Draws per partition, and burn-in trajectories.
DRAWS, BURN_IN = 20, 60


class LearningReport(Record, frozen=True, omit_defaults=True):
    """The fact `input_errors` of a fit, which describes how the errors were learned."""

    rows: CountFromOne
    noise_seen: Positive | None = None
    """noise variance of scaled targets learned before, with inputs taken as exact; None of other than normal errors"""
    beginnings: list[Number | None] = msgspec.field(default_factory=list)
    """score of each start, None where it failed, if there were several"""
    densities: list[Number | None] = msgspec.field(default_factory=list)
    """clean: log densities of left-out rows by noise level or temperature, None where they failed"""
    rounds: CountFromOne = 1
    """hmc: number of rounds"""


@dataclass(frozen=True)
class NormalErrors(InputErrors):
    """Independent Gaussian errors of the inputs of each row."""

    way: str
    """method of learning hyper-parameters: clean: at the most probable inputs; hmc: at draws of the inputs"""
    highest: Positive
    """noise variance of scaled targets at which the search for inputs starts, lowered to the likelihood's; of other
    than normal errors, the temperature at which it starts"""
    variance: tuple[NotNegative, ...] | None = None
    seed: Count = 0
    """of the draws"""

    def expert(self, model: Reference) -> "NoisyExpert":
        return NoisyExpert(model)

    def first_temperature(self, likelihood: Likelihood) -> float:
        """Temperature at which the search for inputs starts (`map_steps`)."""
        return self.highest / float(likelihood.parameters[NOISE][0]) if likelihood.normal else self.highest

    def roots(self, data, X, X_variance, scaling) -> np.ndarray:
        if self.variance is not None:
            return np.tile(np.diag(np.sqrt(self.variance)), (len(X), 1, 1))
        self.refuse_unknown(data)
        if X_variance.ndim == X.ndim:
            deviations = np.sqrt(X_variance) * scaling.slopes(X)
            return deviations[:, :, None] * np.eye(len(scaling.x_scale))
        share, axes = np.linalg.eigh(scaling.input_covariances(X, X_variance))
        return axes * np.sqrt(np.maximum(share, 0.0))[:, None]


@dataclass(frozen=True)
class NoisyExpert:
    """Task: the message of a partition, averaged over draws of its true inputs, times the partition's weight.

    With spatial partitions, the message of averaged moments (`averaged_message`), as in local predictions. Otherwise:

    For a partition without state the draws are computed from its rows and the model, and stored as a blob (a retry
    stores the same blob). For a partition with state the stored draws are read, so the message is repeated exactly.
    """

    model: Reference

    def __call__(self, part, rows):
        model, store = load_model(self.model), open_store(self.model.url)
        obs = model_observations(model, part, rows.obs, rows.X)
        if model.cells is not None:
            rows_with_errors = noisy_rows(model, part, rows, obs)
            message, name = averaged_message(model.shared, process_of(model), rows_with_errors), ""
        elif part.state:
            name = part.state
            draws = load_draws(BlobReference(self.model.url, name), part.rows, model.inputs)
            message = message_of_draws(model, draws, obs)
        else:
            draws = input_draws(model, part, rows, obs)
            name = store.put_arrays({"": draws})[""]
            message = message_of_draws(model, draws, obs)
        densities = densities_of(model.likelihood, obs)
        entry = Entry(part.key, rows.digest, part.rows, part.weight, state=name, densities=densities)
        return Contribution(message.weighted(part.weight), {part.key: entry})


def message_of_draws(model: Model, draws, obs) -> Message:
    """The moment-matched message of rows at draws of their inputs, (K, n, D)."""
    return matched([expert_message(model.shared, model.likelihood, X, obs) for X in draws])


def process_of(model: Model) -> Process:
    """The process of a model and its likelihood."""
    return Process(model.shared.kernel, model.shared.mean, model.likelihood)


def noisy_rows(model: Model, part, rows, obs) -> NoisyRows:
    """The scaled rows of a partition with the errors of their inputs.

    Raises
    ------
    InvalidData
    """
    errors = model.input_errors
    assert errors is not None, "an expert of models with errors of inputs"
    return NoisyRows(model.scaling.inputs(rows.X), errors.roots(part.data, rows.X, rows.X_variance, model.scaling), obs)


def input_draws(model: Model, part, rows, obs) -> np.ndarray:
    """Draws of the true inputs of a partition, scaled, (K, n, D), for both ways of learning hyper-parameters.

    The chain starts at the most probable inputs; its seed combines the model's seed and the digest of the rows. The
    most probable inputs alone would make predictions overconfident, because they are fitted to the targets.
    """
    errors = model.input_errors
    assert isinstance(errors, NormalErrors), "an expert of models with normal errors of inputs"
    noisy, process = noisy_rows(model, part, rows, obs), process_of(model)
    steps = map_steps(process, noisy, errors.first_temperature(model.likelihood))
    seed = [errors.seed, int(rows.digest[:15], 16)]
    return noisy.at(sampled(process, noisy, steps, count=DRAWS, burn_in=BURN_IN, seed=seed).steps)


def load_draws(reference: BlobReference, rows: int, inputs: int) -> np.ndarray:
    """Load the stored result of `input_draws` for a partition of `rows` rows.

    Raises
    ------
    ModelDamaged
    """
    array = open_store(reference.url).get_array(reference.digest)
    where = f"{reference.url}: blob {reference.digest[:12]}"
    if array.ndim != 3 or len(array) == 0:
        raise damaged(where, "draws of inputs (K, n, D)", f"shape {array.shape}")
    check_array(array, where, "inputs", shape=(len(array), rows, inputs))
    return array
