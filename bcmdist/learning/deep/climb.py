"""Rounds of L-BFGS on the tied energy, until rows that were left out are predicted no better."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist.data.partition import Partition
from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.deep.objective import DeepObjective, Reached, bounds, joined, split
from bcmdist.model.deep.layer import Layer
from bcmdist.model.shared.deep import Deep

# Iterations of a round, after which what was found is kept for a process that comes after this one, and rows that are
# left out are asked. It ends when so many rounds in a row have not gained, by the few rows that there may be: on
# training rows of Yacht that no climb has seen log densities are -0.57 where two rounds are enough, and -0.40 with
# four; on such of Boston the same.
ROUND, PATIENCE = 100, 4
NOWHERE = 1e12  # what is lost where a covariance is none
MEMORY = 100  # of L-BFGS: on a split of Concrete the energy after 800 iterations was 30 higher than with 20


def climbed(objective, start: Sequence[Layer], steps) -> tuple[list[Layer], float, int]:
    """The layers that L-BFGS finds in at most so many iterations, their energy, and evaluations made."""
    best: list[Any] = [-np.inf, list(start)]
    counted = 0

    def loss(numbers):
        nonlocal counted
        counted += 1
        layers = split(numbers, start)
        try:
            found = objective(layers)
        except (NotPositiveDefinite, np.linalg.LinAlgError):  # a step too far
            return NOWHERE, np.zeros_like(numbers)
        if found.value > best[0]:
            best[:] = [found.value, layers]
        return -found.value, -found.gradient

    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": MEMORY, "ftol": 0.0, "gtol": 0.0}
    minimize(loss, joined(start), jac=True, method="L-BFGS-B", bounds=bounds(start), options=options)
    return best[1], best[0], counted


def climbed_on(objective: DeepObjective, start: Deep, held: Sequence[Partition], steps) -> Reached:
    """The best that rounds of `climbed` come to, until rows that were left out are predicted no better.

    The energy goes on rising where layers begin to know their rows by heart: on training rows of Boston that were left
    out, from 200 to 800 iterations log densities fall from -2.3 to -2.5.
    """
    layers, evaluations, best = list(start.layers), 0, None
    for done in range(0, steps, ROUND):
        layers, energy, more = _once(objective, layers, done)
        evaluations += more
        reached = replace(start, layers=tuple(layers))
        if objective.likelihood.normal:
            reached = objective.heard(reached)
        density = objective.density(reached.layers, held) if held else energy
        if best is None or density > best.density:
            best, since = Reached(reached, energy, density, evaluations), 0
        elif (since := since + 1) == PATIENCE:
            break
    assert best is not None, "there are steps"
    return replace(best, evaluations=evaluations)


def _once(objective, layers, done) -> tuple[list[Layer], float, int]:
    """What a round of `climbed` finds, or has found."""

    def climb():
        found, energy, evaluations = climbed(objective, layers, ROUND)
        return {"numbers": joined(found), "counts": np.array([energy, evaluations])}

    kept = objective.once(["L-BFGS", done], layers, climb)
    energy, evaluations = kept["counts"].tolist()
    return split(kept["numbers"], layers), energy, int(evaluations)
