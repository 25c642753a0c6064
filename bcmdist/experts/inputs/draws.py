"""Draws of the true inputs by Hamiltonian Monte Carlo (Quinonero-Candela 2004, 4.3.2; SYSTEMS T24).

Momenta are drawn anew for each trajectory, and the length of its steps follows the share of trajectories that are
accepted: posteriors are the narrower the smaller the noise. It stands still while draws are kept.
"""

import math
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import NotPositiveDefinite
from bcmdist.experts.hmc import energy, leapfrog
from bcmdist.experts.inputs.density import Beliefs, Seen, log_density

# Leapfrog steps of a trajectory, on average; where the length of a step begins, and the share of accepted trajectories
# that it is led to (a customary number), by this power of the difference for each trajectory.
LEAPFROGS, STEP = 10, 0.1
ACCEPTED, GAIN = 0.8, 0.2
EVERY = 3  # of how many trajectories one end is kept


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

    def density(flat):
        try:
            value, gradient = log_density(beliefs, seen, flat.reshape(start.shape))
        except NotPositiveDefinite:
            return -math.inf, np.zeros_like(flat)
        return value, gradient.ravel()

    rng, steps = np.random.default_rng(seed), np.ravel(start)
    value, gradient = density(steps)
    kept, accepted = [], 0
    for trajectory in range(burn_in + EVERY * count):
        here = steps, rng.standard_normal(len(steps)), value, gradient
        leaps = int(rng.integers(1, 2 * LEAPFROGS))
        there = leapfrog(density, *here, step=length, count=leaps)
        chance = math.exp(min(0.0, energy(*here) - energy(*there)))
        taken = rng.uniform() < chance
        if taken:
            steps, _, value, gradient = there
        if trajectory < burn_in:
            length *= math.exp(GAIN * (chance - ACCEPTED))
            continue
        accepted += taken
        if (trajectory - burn_in) % EVERY == EVERY - 1:
            kept.append(steps.reshape(start.shape))
    return Draws(np.array(kept), length, accepted / (EVERY * count))
