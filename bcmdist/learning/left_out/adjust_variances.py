"""Adjust variances by the predictive density of left-out rows, after their evidence has been maximised.

Left-out rows may raise the noise (or the corresponding parameter of another likelihood) and the kernel's variance,
since the evidence over a few hundred rows misses rare neighbours that disagree. They may not lower them: one
disagreeing row in thousands, probably not among those left out, can cost more than all others gain. The noise of
labels may fall, too: it only determines how much weight a label has against its neighbours. Calibration corrects the
probabilities afterwards, and the evidence, which treats labels as numbers, gives no guidance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood

HeldOutScore = Callable[[Kernel, Likelihood], float]
"""Log predictive density of left-out rows in nats; -inf on numerical failure."""

# Powers of these factors are tried, up to the largest noise variance (of scaled targets) and the largest growth of the
# kernel's variance; for labels also down to the smallest share. A power is accepted if it gains `GAIN_NATS`.
NOISE_FACTOR, LARGEST_NOISE, SMALLEST_SHARE = 4.0, 1.0, 1.0 / 16.0
KERNEL_FACTOR, LARGEST_GROWTH = math.sqrt(2.0), 8.0
GAIN_NATS = 1.0

# As above, for the variance of an observation in likelihoods other than Gaussian noise and one-hot labels.
DISPERSION_FACTOR = math.sqrt(2.0)


@dataclass(frozen=True)
class NoiseAdjusted:
    """Kernel and likelihood with the variances of the highest left-out density."""

    kernel: Kernel
    likelihood: Likelihood
    value: float
    """left-out log density at these variances, in nats"""
    factors: dict[str, float] = field(default_factory=dict)
    """factors on the variances: "noise" and "kernel", or "dispersion" for other likelihoods"""


def noise_adjusted(score: HeldOutScore, kernel: Kernel, likelihood: Likelihood) -> NoiseAdjusted:
    """Raise variances as long as the left-out density improves; the noise of labels may also be lowered.

    For Gaussian targets "noise" and "kernel" are adjusted, for one-hot targets the noise only, for other likelihoods
    the first parameter that widens them (`Likelihood.widening`), if any. Nothing is changed if the left-out density
    cannot be computed. No variance leaves its bounds.
    """
    value = score(kernel, likelihood)
    if not math.isfinite(value):
        return NoiseAdjusted(kernel, likelihood, value)
    if not (likelihood.exact and likelihood.widening):
        return _dispersed(score, kernel, likelihood, value)
    start, factors = likelihood, {"noise": 1.0}
    name = next(iter(start.widening))
    noise = start.parameters[name]

    def noisier(factor):
        return start.with_parameters({name: factor * noise})

    rising = _powers(NOISE_FACTOR, LARGEST_NOISE / noise.max())
    falling = [1.0 / f for f in _powers(NOISE_FACTOR, 1.0 / SMALLEST_SHARE)] if start.on_labels else []
    for powers in (falling, rising):
        factor, value = _best(powers, lambda factor: score(kernel, noisier(factor)), value)
        if factor != 1.0:
            likelihood, factors["noise"] = noisier(factor), factor
    if likelihood.on_labels or not kernel.variances:
        return NoiseAdjusted(kernel, likelihood, value, factors)

    def wider(factor):
        grown = {n: (factor * kernel.parameters[n]).clip(max=kernel.bounds[n][1]) for n in kernel.variances}
        return kernel.with_parameters(grown)

    powers = _powers(KERNEL_FACTOR, LARGEST_GROWTH)
    factors["kernel"], value = _best(powers, lambda factor: score(wider(factor), likelihood), value)
    return NoiseAdjusted(wider(factors["kernel"]), likelihood, value, factors)


def _dispersed(score, kernel, start, value):
    """Raise the dispersion of a likelihood as long as the left-out density improves; never lower it."""
    if not start.widening:
        return NoiseAdjusted(kernel, start, value)
    name, power = next(iter(start.widening.items()))

    def wider(factor):
        changed = start.parameters[name] * factor**power
        return start.with_parameters({name: changed.clip(*start.bounds[name])})

    powers = _powers(DISPERSION_FACTOR, LARGEST_GROWTH)
    factor, value = _best(powers, lambda factor: score(kernel, wider(factor)), value)
    return NoiseAdjusted(kernel, wider(factor), value, {"dispersion": factor})


def _best(powers, judged, value):
    """Try powers in order until one is worse; return the best and its value, or 1 if none gains on `value`."""
    best = 1.0
    for factor in powers:
        found = judged(factor)
        if found < value:
            break
        if found >= value + GAIN_NATS:
            best, value = factor, found
    return best, value


def _powers(factor, largest):
    """Return factor, factor^2, ... up to `largest`."""
    steps = int(math.log(max(largest, 1.0)) / math.log(factor) + 1e-9)
    return [factor**k for k in range(1, steps + 1)]
