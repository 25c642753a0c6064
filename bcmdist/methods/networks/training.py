"""Train marginalised networks: random draws, then ascent of the evidence (Lazaro-Gredilla & Figueiras-Vidal, III, IV).

    mnn       one network of `--units` hidden units
    mnnmix    a mixture of `--networks` networks, trained from different draws to different maxima

The hyper-parameters of a kernel are learned first, as for any expert. The initial inner weights are drawn with the
kernel's lengthscales; the default kernel is `arcsine`, the limit of infinitely many such units. L-BFGS then maximises
the evidence of all rows, or of a sample, in inner weights, signal and noise variance (`ascent`), in O(n M^2) per
evaluation (`evidence`). The distribution of errors is that of the networks as they were before the rows left out were
added (`bcmdist.learning.training_errors`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.committee.record import Record
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.training_context import TrainingContext
from bcmdist.learning.training_errors import training_errors
from bcmdist.methods.networks.ascent import LEFT_OUT, STEP, STEPS, Ascent, climbed, first_of
from bcmdist.methods.networks.evidence import NOISE, Network
from bcmdist.methods.networks.options import MixtureOptions, NetworkOptions
from bcmdist.methods.networks.shared import Networks, Units
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import OneProcess
from bcmdist.prediction.errors.error_distribution import trained_errors
from bcmdist.storage.fields import Count, CountFromOne, Number, Positive

KERNEL = "arcsine"
UNITS = 250  # default number of hidden units
# Largest number of rows whose evidence is maximised, and rows per sampled block.
ROWS, BLOCK = 100_000, 2000


class NetworksReport(Record, frozen=True):
    """The fact `networks` of a fit; lists have an item for each network."""

    rows: CountFromOne
    """number of training rows"""
    log_evidence: list[Number]
    """of scaled targets"""
    noise_variance: list[Positive]
    evaluations: list[Count]
    """numbers of evaluations of the evidence"""


def drawn(basis_inputs: BasisInputs) -> Networks:
    """Networks with inner weights drawn from N(0, 1 / lengthscale^2), before training.

    The prior variance of the output weights is chosen so that the networks' variance, averaged over the rows of the
    sample, equals the kernel's.
    """
    rng, widths = (
        np.random.default_rng(basis_inputs.seed),
        inner_widths(basis_inputs.kernel, basis_inputs.sample.shape[1]),
    )
    count = number(basis_inputs.options)
    inner = rng.standard_normal((count, basis_inputs.count, len(widths))) * widths
    variance = basis_inputs.kernel.diagonal(basis_inputs.sample).mean()
    scale = [np.sqrt(variance / (Units(one).features(basis_inputs.sample) ** 2).sum(axis=1).mean()) for one in inner]
    return Networks(
        inner, np.array(scale), np.ones(count), basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual
    )


def inner_widths(kernel: Kernel, inputs: int) -> np.ndarray:
    """Standard deviations of the initial inner weights of a unit, (1 + D,), the offset's first.

    Offsets vary as much as u'x does over standardised rows, so that units are steepest among the rows. With l_0^2 =
    sum l_d^2 (section V) nearly all units would be steepest at the centre of the rows.
    """
    widths = 1.0 / metric(kernel, inputs)
    return np.concatenate([[np.linalg.norm(widths)], widths])


def number(options: NetworkOptions) -> int:
    """Number of networks, one without a mixture."""
    return options.networks if isinstance(options, MixtureOptions) else 1


def trained(shared: Networks, likelihood: OneProcess, context: TrainingContext) -> tuple[Networks, OneProcess]:
    """Networks at maxima of their evidence, and the likelihood with the mean of their noise variances; without
    learning, the networks as drawn."""
    if not context.learn:
        return shared, likelihood
    most = context.options.train_rows or ROWS
    rows = min(most, sum(part.rows for part in context.parts))
    parts = context.sampled(most, min(BLOCK, max(rows // LEFT_OUT, 1)))
    widths = inner_widths(shared.kernel, shared.inputs)
    starts = [Network(inner, float(s), likelihood) for inner, s in zip(shared.inner, shared.scale, strict=True)]
    limit = context.limit
    how = Ascent(widths, STEPS[context.effort], limit.left_for_training())
    found = climbed(starts, parts, shared.mean, how, context)
    if any(one.cut for one in found):
        limit.unfinished.append(STEP)
        context.found["unfinished"] = limit.to_json()
    context.found["networks"] = NetworksReport(
        rows=sum(part.rows for part in parts),
        log_evidence=[one.log_evidence for one in found],
        noise_variance=_noise(one.network for one in found).tolist(),
        evaluations=[one.evaluations for one in found],
    )
    first = first_of(parts)
    if left_out := parts[len(first) :]:
        # With the noise of the result, to whose variances the distribution of errors is relative.
        before = [
            replace(one.without_left_out, likelihood=one.network.likelihood) for one in found if one.without_left_out
        ]
        residuals = training_errors(*_mixture(before, shared, likelihood), context, first, left_out).residuals()
        context.found["trained_errors"] = trained_errors(residuals, shared.kernel, shared.inputs)
    return _mixture([one.network for one in found], shared, likelihood)


def _noise(networks: Iterable[Network]) -> np.ndarray:
    """Noise variances of networks, (K,)."""
    return np.array([float(one.likelihood.parameters[NOISE][0]) for one in networks])


def _mixture(networks: Sequence[Network], shared: Networks, likelihood: OneProcess) -> tuple[Networks, OneProcess]:
    """The mixture of some networks, and the likelihood with the mean of their noise variances.

    With that mean, and each network's noise relative to it, the observation variance under the mixture, 1 / K
    sum (m_k^2 + v_k) - mean^2 (eq. 10b), equals the variance of f plus the noise of the likelihood.
    """
    noise, scale = _noise(networks), np.array([one.scale for one in networks])
    inner, how = np.stack([one.inner for one in networks]), (shared.kernel, shared.mean, shared.residual)
    made = Networks(inner, scale, noise / noise.mean(), *how)
    return made, likelihood.with_parameters({NOISE: noise.mean(keepdims=True)})
