"""Joint samples of f with the marginals of predictions, and of new observations."""

from typing import cast

import numpy as np

from bcmdist.data.observations import unweighted
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.scored_rows import Marginals, marginals


def samples_of(predictor: Predictor, inputs, size, rng) -> tuple[np.ndarray, Marginals]:
    """Joint samples of f at scaled inputs (n, D), (size, n), in the units of the model, and their marginals."""
    found = marginals(predictor, inputs, unweighted(np.zeros(len(inputs))))
    return found.mean + found.shrink * (predictor.sample(inputs, size, rng) - found.mean), found


def sampled_observations(model: Model, obs, f, found: Marginals, rng) -> np.ndarray:
    """New observations (size, n), in original units, given samples of f (size, n) with marginals `found`.

    The noise of a normal likelihood is normal, with the variance implied by predictions, also where the errors of
    predictions have another shape.

    Parameters
    ----------
    obs : exposure and trials of the observations, in original units
    """
    likelihood, units = cast(OneProcess, model.likelihood), model.likelihood.units
    if likelihood.normal:
        return model.scaling.original("sample", f + np.sqrt(found.noise) * rng.standard_normal(f.shape), units)
    drawn = likelihood.distribution(model.scaling.observations(obs, units), f.T).rvs(random_state=rng).T
    return model.scaling.original("observation_mean", drawn, units)
