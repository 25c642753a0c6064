"""Standardised residuals of predictions, and the places where they were made."""

from typing import cast

import numpy as np

from bcmdist.data.rows import Rows
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.prediction.errors.heteroscedasticity import places_of
from bcmdist.prediction.observation import predictive
from bcmdist.prediction.predictive import Numbers

# So that they are the same in whatever order a committee was summed.
DECIMALS = 6
SEED_DIGITS = 16


def standardised_residuals(
    likelihood: Likelihood, X, mean, variance, obs, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Places (k, D + 1) and errors (k,) of what latent beliefs (n,) at scaled inputs X (n, D) said of observations, but
    of those that cannot vary, as counts without trials.

    Parameters
    ----------
    likelihood : one whose errors are `measured`
    """
    said = cast(Numbers, predictive(cast(OneProcess, likelihood), mean, variance, obs))
    z = said.standardised(obs, generator)
    some = (said.variance > 0.0) & np.isfinite(z)
    return np.round(places_of(X[some], said.variance[some]), DECIMALS), np.round(z[some], DECIMALS)


def seed_of(rows: Rows) -> int:
    """A seed of their content: partitions of several data sets begin at the same row, and are not to be drawn alike."""
    return int(rows.digest[:SEED_DIGITS], 16)
