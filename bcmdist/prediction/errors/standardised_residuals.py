"""Standardised residuals of predictions, with the scaled inputs and log variances at which they were made."""

from typing import cast

import numpy as np

from bcmdist.data.rows import Rows
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.prediction.errors.heteroscedasticity import places_of
from bcmdist.prediction.observation import predictive
from bcmdist.prediction.predictive import Numbers

# Rounding makes residuals independent of the order in which a committee was summed.
DECIMALS = 6
SEED_DIGITS = 16


def standardised_residuals(
    likelihood: Likelihood, X, mean, variance, obs, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Places (k, D + 1) and standardised residuals (k,) of latent predictions (n,) at scaled inputs X (n, D).

    A place is the scaled input and the log of the predictive variance. Observations without variance (counts without
    trials) and residuals that are not finite are left out, so k <= n.

    Parameters
    ----------
    likelihood : one whose errors are `measured`
    mean, variance : of the latent function, (n,)
    generator : draws residuals where only a range is known (counts, censored rows)
    """
    predicted = cast(Numbers, predictive(cast(OneProcess, likelihood), mean, variance, obs))
    z = predicted.standardised(obs, generator)
    some = (predicted.variance > 0.0) & np.isfinite(z)
    return np.round(places_of(X[some], predicted.variance[some]), DECIMALS), np.round(z[some], DECIMALS)


def seed_of(rows: Rows) -> int:
    """A seed from the content of rows. Partitions of different data sets may start at the same row, but need different
    draws."""
    return int(rows.digest[:SEED_DIGITS], 16)
