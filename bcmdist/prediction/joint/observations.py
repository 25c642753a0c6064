"""Joint samples of f with the marginals of predictions, and of new observations."""

from typing import cast

import numpy as np

from bcmdist.data.observations import Observations, unweighted
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.model.scaling import Scaling
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.scored_rows import Marginals, marginals


def samples_of(predictor: Predictor, inputs, size, rng) -> tuple[np.ndarray, Marginals]:
    """Joint samples of f at scaled inputs (n, D), (size, n), in the units of the model, and their marginals."""
    found = marginals(predictor, inputs, at_rows(predictor.model, inputs)[0])
    return found.mean + found.shrink * (predictor.sample(inputs, size, rng) - found.mean), found


def at_rows(model: Model, inputs) -> tuple[Observations, Scaling]:
    """Observations without known targets at inputs (n, D), scaled or not, and the scaling of targets there."""
    obs = model.scaling.with_outputs(unweighted(np.zeros(len(inputs))), inputs)
    return obs, model.scaling.of_rows(obs)


def sampled_observations(model: Model, inputs, obs, f, found: Marginals, rng) -> np.ndarray:
    """New observations (size, n), in original units, given samples of f (size, n) with marginals `found`.

    The noise of a normal likelihood is normal, with the variance implied by predictions, also where the errors of
    predictions have another shape.

    Parameters
    ----------
    inputs : (n, D), scaled
    obs : exposure and trials of the observations, in original units
    """
    likelihood, units, (_, scaling) = cast(OneProcess, model.likelihood), model.likelihood.units, at_rows(model, inputs)
    if likelihood.normal:
        return scaling.original("sample", f + np.sqrt(found.noise) * rng.standard_normal(f.shape), units)
    drawn = likelihood.distribution(model.scaling.observations(obs, units, inputs), f.T).rvs(random_state=rng).T
    return scaling.original("observation_mean", drawn, units)
