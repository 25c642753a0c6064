"""Draws of the true inputs by Hamiltonian Monte Carlo (Quinonero-Candela 2004, 4.3.2; SYSTEMS T24), and the evidence
of rows averaged over these.

Momenta are drawn anew for each trajectory, and the length of its steps follows the share of trajectories that are
accepted: posteriors are the narrower the smaller the noise. It stands still while draws are kept.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.hmc import energy, leapfrog
from bcmdist.methods.noisy_inputs.posterior import Beliefs, Seen, log_density

# Leapfrog steps of a trajectory, on average; where the length of a step begins, and the share of accepted trajectories
# that it is led to (a customary number), by this power of the difference for each trajectory.
LEAPFROGS, STEP = 10, 0.1
ACCEPTED, GAIN = 0.8, 0.2
EVERY = 3  # of how many trajectories one end is kept
# Stepping stones from the prior of inputs to what rows say of them, closer together where they begin; trajectories at
# each, of which the first are left out. Of 20 rows two seeds differ by a nat or two.
STONES, CROWDING, AT_EACH, SETTLING = 16, 3, 12, 4


@dataclass(frozen=True)
class Draws:
    """Where a chain has been."""

    steps: np.ndarray
    """Z of each draw kept, (K, n, D)"""
    length: float
    """of a leapfrog step, at the end"""
    acceptance: float
    """share of trajectories accepted while draws were kept"""


def drawn(beliefs: Beliefs, seen: Seen, start, *, count, burn_in, seed, length=STEP) -> Draws:
    """Some draws from exp(`log_density`), after as many trajectories as `burn_in` says.

    Parameters
    ----------
    start : Z (n, D)
    count : K
    seed : of whatever `numpy.random.default_rng` takes
    """
    density, rng = _tempered(beliefs, seen, 1.0), np.random.default_rng(seed)
    steps, kept, accepted = np.ravel(start), [], 0
    for trajectory in range(burn_in + EVERY * count):
        steps, chance, taken = _moved(density, steps, rng, length)
        if trajectory < burn_in:
            length = _adapted(length, chance)
            continue
        accepted += taken
        if (trajectory - burn_in) % EVERY == EVERY - 1:
            kept.append(steps.reshape(start.shape))
    return Draws(np.array(kept), length, accepted / (EVERY * count))


def log_evidence(beliefs: Beliefs, seen: Seen, *, seed) -> float:
    """log p(y), true inputs averaged over, by stepping stones (Xie et al. 2011).

    log p(y) = sum_k log E_k p(y | X)^(b_k+1 - b_k),   E_k over p(y | X)^b_k p(X),   b_k = (k / K)^3

    Chains go on from stone to stone, and begin with a draw of the prior.
    """
    powers, rng, length = (np.arange(STONES + 1) / STONES) ** CROWDING, np.random.default_rng(seed), STEP
    steps, found = rng.standard_normal(seen.inputs.size), 0.0
    for power, after in itertools.pairwise(powers):
        density, seen_there = _tempered(beliefs, seen, power), []
        for trajectory in range(AT_EACH):
            steps, chance, _ = _moved(density, steps, rng, length)
            length = _adapted(length, chance)
            if trajectory >= SETTLING:
                value, _ = _tempered(beliefs, seen, 1.0)(steps)
                seen_there.append((after - power) * (value + 0.5 * steps @ steps))
        found += np.logaddexp.reduce(seen_there) - math.log(len(seen_there))
    return float(found)


def _tempered(beliefs, seen, power):
    """log p(y | X)^power p(X) and its gradient, of flat steps."""

    def density(flat):
        try:
            value, gradient = log_density(beliefs, seen, flat.reshape(seen.inputs.shape))
        except NotPositiveDefinite:
            return -math.inf, np.zeros_like(flat)
        rest = 1.0 - power
        return power * value - 0.5 * rest * flat @ flat, power * gradient.ravel() - rest * flat

    return density


def _moved(density, steps, rng, length):
    """Where a trajectory leads or, as chance has it, does not; its chance, and whether it was taken."""
    momentum, leaps = rng.standard_normal(len(steps)), int(rng.integers(1, 2 * LEAPFROGS))
    here = steps, momentum, *density(steps)
    there = leapfrog(density, *here, step=length, count=leaps)
    chance = math.exp(min(0.0, energy(*here) - energy(*there)))
    taken = rng.uniform() < chance
    return there[0] if taken else steps, chance, taken


def _adapted(length, chance):
    return length * math.exp(GAIN * (chance - ACCEPTED))
