"""Draws of true inputs by Hamiltonian Monte Carlo, and the evidence of rows integrated over inputs.

(Quinonero-Candela 2004, 4.3.2; SYSTEMS T24.) Momenta are redrawn for each trajectory. During burn-in the step length
adapts to the acceptance rate, since posteriors are narrower with less noise; it is fixed while draws are kept.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from bcmdist.experts.hmc import energy, leapfrog
from bcmdist.methods.noisy_inputs.posterior import NUMERICAL, NoisyRows, Process, log_density

# Mean number of leapfrog steps per trajectory, and the initial step length; the target acceptance rate (a customary
# value), and the gain with which the log step length follows the difference from it.
LEAPFROGS, STEP = 10, 0.1
ACCEPTED, GAIN = 0.8, 0.2
EVERY = 3  # one draw is kept per so many trajectories
# Stepping stones from the prior of inputs to their posterior, denser near the prior; trajectories per stone, and how
# many of these are burn-in.
STONES, CROWDING, AT_EACH, SETTLING = 16, 3, 12, 4


@dataclass(frozen=True)
class Draws:
    """Draws from a Markov chain."""

    steps: np.ndarray
    """Z of each draw, (K, n, D)"""
    length: float
    """leapfrog step length at the end"""
    acceptance: float
    """share of trajectories accepted after burn-in"""


def sampled(process: Process, noisy: NoisyRows, start, *, count, burn_in, seed, length=STEP) -> Draws:
    """Draws from exp(`log_density`), after `burn_in` trajectories.

    Parameters
    ----------
    start : Z (n, D)
    count : K
    seed : as for `numpy.random.default_rng`
    """
    density, rng = _tempered(process, noisy, 1.0), np.random.default_rng(seed)
    steps, kept, accepted = np.ravel(start), [], 0
    for trajectory in range(burn_in + EVERY * count):
        steps, probability, accepted_one = _transition(density, steps, rng, length)
        if trajectory < burn_in:
            length = _adapted(length, probability)
            continue
        accepted += accepted_one
        if (trajectory - burn_in) % EVERY == EVERY - 1:
            kept.append(steps.reshape(start.shape))
    return Draws(np.array(kept), length, accepted / (EVERY * count))


def log_evidence(process: Process, noisy: NoisyRows, *, seed) -> float:
    """log p(y), integrated over the true inputs, by stepping stones (Xie et al. 2011).

    log p(y) = sum_k log E_k p(y | X)^(b_k+1 - b_k),   E_k over p(y | X)^b_k p(X),   b_k = (k / K)^3

    The chain starts with a draw from the prior and continues from stone to stone.
    """
    powers, rng, length = (np.arange(STONES + 1) / STONES) ** CROWDING, np.random.default_rng(seed), STEP
    steps, found = rng.standard_normal(noisy.inputs.size), 0.0
    for power, after in itertools.pairwise(powers):
        density, values = _tempered(process, noisy, power), []
        for trajectory in range(AT_EACH):
            steps, probability, _ = _transition(density, steps, rng, length)
            length = _adapted(length, probability)
            if trajectory >= SETTLING:
                value, _ = _tempered(process, noisy, 1.0)(steps)
                values.append((after - power) * (value + 0.5 * steps @ steps))
        found += np.logaddexp.reduce(values) - math.log(len(values))
    return float(found)


def _tempered(process, noisy, power):
    """log p(y | X)^power p(X) and its gradient, as a function of flat steps."""

    def density(flat):
        try:
            value, gradient = log_density(process, noisy, flat.reshape(noisy.inputs.shape))
        except NUMERICAL:
            return -math.inf, np.zeros_like(flat)
        prior = 1.0 - power
        return power * value - 0.5 * prior * flat @ flat, power * gradient.ravel() - prior * flat

    return density


def _transition(density, steps, rng, length):
    """The state after a trajectory, its acceptance probability, and whether it was accepted."""
    momentum, leaps = rng.standard_normal(len(steps)), int(rng.integers(1, 2 * LEAPFROGS))
    here = steps, momentum, *density(steps)
    there = leapfrog(density, *here, step=length, count=leaps)
    probability = math.exp(min(0.0, energy(*here) - energy(*there)))
    accepted = rng.uniform() < probability
    return there[0] if accepted else steps, probability, accepted


def _adapted(length, probability):
    return length * math.exp(GAIN * (probability - ACCEPTED))
