"""Settling variances by rows left out, after their evidence has been maximised.

Rows left out may raise the noise, or what a family has in its place, and the kernel's variance, since evidence over a
few hundred rows misses rare neighbours that disagree. They may not lower them: one row in thousands that would have
been seen to disagree can cost more than all others gain. Not so the noise of labels, which only says how far a label is
believed beside its neighbours': calibration settles what follows for probabilities, and the evidence, for which labels
are numbers, is no guide to it. It may fall, too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood

HeldOutScore = Callable[[Kernel, Likelihood], float]
"""Log predictive density of rows left out, in nats; -inf where it fails."""

# Factors whose powers are tried, all up to the largest noise variance (of scaled targets) and the largest growth of
# the kernel's variance, for labels as far down as their smallest share; and the least gain for which a power is taken.
NOISE_FACTOR, LARGEST_NOISE, SMALLEST_SHARE = 4.0, 1.0, 1.0 / 16.0
KERNEL_FACTOR, LARGEST_GROWTH = math.sqrt(2.0), 8.0
GAIN_NATS = 1.0

# The factor on the variance of an observation whose powers are tried where that is not the noise of numbers or labels.
DISPERSION_FACTOR = math.sqrt(2.0)


@dataclass(frozen=True)
class NoiseAdjusted:
    """Kernel and likelihood at the variances at which rows left out are likeliest."""

    kernel: Kernel
    likelihood: Likelihood
    value: float
    """of the judge, there"""
    factors: dict[str, float] = field(default_factory=dict)
    """by which variances were changed: of the "noise" and of the "kernel", or the "dispersion" of another family"""


def noise_adjusted(judge: HeldOutScore, kernel: Kernel, likelihood: Likelihood) -> NoiseAdjusted:
    """Raise variances as far as rows left out ask for it; the noise of labels, lower or raise it.

    Gaussian targets settle "noise" and "kernel", one-hot targets the noise only, other families the first parameter
    that widens them (`Likelihood.widening`), if any. Nothing is settled where rows left out cannot be judged. No
    variance leaves its bounds.
    """
    value = judge(kernel, likelihood)
    if not math.isfinite(value):
        return NoiseAdjusted(kernel, likelihood, value)
    if not (likelihood.exact and likelihood.widening):
        return _dispersed(judge, kernel, likelihood, value)
    start, factors = likelihood, {"noise": 1.0}
    name = next(iter(start.widening))
    noise = start.parameters[name]

    def noisier(factor):
        return start.with_parameters({name: factor * noise})

    rising = _powers(NOISE_FACTOR, LARGEST_NOISE / noise[0])
    falling = [1.0 / f for f in _powers(NOISE_FACTOR, 1.0 / SMALLEST_SHARE)] if start.on_labels else []
    for powers in (falling, rising):
        factor, value = _best(powers, lambda factor: judge(kernel, noisier(factor)), value)
        if factor != 1.0:
            likelihood, factors["noise"] = noisier(factor), factor
    if likelihood.on_labels or not kernel.variances:
        return NoiseAdjusted(kernel, likelihood, value, factors)

    def wider(factor):
        grown = {n: (factor * kernel.parameters[n]).clip(max=kernel.bounds[n][1]) for n in kernel.variances}
        return kernel.with_parameters(grown)

    powers = _powers(KERNEL_FACTOR, LARGEST_GROWTH)
    factors["kernel"], value = _best(powers, lambda factor: judge(wider(factor), likelihood), value)
    return NoiseAdjusted(wider(factors["kernel"]), likelihood, value, factors)


def _dispersed(judge, kernel, start, value):
    """The likelihood at the dispersion, not below its own, at which rows left out are likeliest."""
    if not start.widening:
        return NoiseAdjusted(kernel, start, value)
    name, power = next(iter(start.widening.items()))

    def wider(factor):
        changed = start.parameters[name] * factor**power
        return start.with_parameters({name: changed.clip(*start.bounds[name])})

    powers = _powers(DISPERSION_FACTOR, LARGEST_GROWTH)
    factor, value = _best(powers, lambda factor: judge(kernel, wider(factor)), value)
    return NoiseAdjusted(kernel, wider(factor), value, {"dispersion": factor})


def _best(powers, judged, value):
    """The best of some powers, in order until one is worse, and its value; 1 where none gains on `value`."""
    best = 1.0
    for factor in powers:
        found = judged(factor)
        if found < value:
            break
        if found >= value + GAIN_NATS:
            best, value = factor, found
    return best, value


def _powers(factor, largest):
    """factor, factor^2, ... up to a largest one."""
    steps = int(math.log(max(largest, 1.0)) / math.log(factor) + 1e-9)
    return [factor**k for k in range(1, steps + 1)]
