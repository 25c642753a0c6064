"""What a ledger notes of the errors of predictions: standardised, and the places where they were made."""

from typing import cast

import numpy as np

from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.prediction.observation import predictive
from bcmdist.prediction.predictive import Numbers
from bcmdist.prediction.scale import places_of

# So that lines are short, and the same in whatever order a committee was summed.
DECIMALS = 6


def noted_errors(
    likelihood: Likelihood, X, mean, variance, obs, generator: np.random.Generator
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Places, row after row, and errors of what latent beliefs (n,) at scaled inputs X (n, D) said of observations.

    Parameters
    ----------
    likelihood : one whose errors are `measured`
    """
    said = cast(Numbers, predictive(cast(OneProcess, likelihood), mean, variance, obs))
    places, z = places_of(X, said.variance).ravel(), said.standardised(obs, generator)
    return tuple(np.round(places, DECIMALS).tolist()), tuple(np.round(z, DECIMALS).tolist())
