"""Numbers as targets."""

from typing import Any, Self

import numpy as np

from bcmdist.api.estimators.numbers import COVERAGE, NumberEstimator
from bcmdist.api.estimators.rows import weighted
from bcmdist.api.estimators.scikit import explained
from bcmdist.errors import InvalidOption


class GBCMRegressor(NumberEstimator):
    """Regression by a Bayesian committee machine.

    Parameters
    ----------
    kernel : str, default "auto"
        Covariance function by name, such as "matern52"; + and * between names; "auto": what predicts rows left out best
    mean : {"auto", "constant", "zero", "linear"}
    likelihood : str, default None
        Of the targets given the latent function; None: normal noise
    expert : str, default "bcm"
        What partitions share, and what is done with the rest: bcm, fitc, mnnmix, rvm, fourier, ...
    query : int or "auto", default None
        Points that experts share (inducing points), at most; None: 500
    rows_per_expert : int, default None
        Rows of a partition, about; None: as the expert takes, mostly 1000
    partition : {"chunks", "spatial"}
        Rows of an expert as they come, or near each other, which gives local prediction
    passes : {None, "1", "auto"}
        Over the data
    noise : {"auto", "constant", "varying"}
        Whether errors are as large everywhere
    effort : {"normal", "quick", "thorough"}
        How long to learn hyper-parameters
    options : dict, default None
        Further fields of `bcmdist.Settings` by name
    random_state : int, RandomState instance or None, default 0
    runtime : None, address of a Dask scheduler, or Dask client
        Where rows are absorbed; they are written to the directory for temporary files, which workers must see. None: in
        this process; at a prompt or in a notebook, from 50,000 rows on, a cluster of this machine for the while.
        Predictions are made in this process, those of dask collections where they are computed

    Rows may be arrays, data frames, or dask arrays and data frames, which are read block by block. A whole
    `sample_weight` says how often a row is there; others divide the variance of normal noise, and multiply other log
    likelihoods, as all do where they sum to more than ten times the rows.

    Attributes
    ----------
    gbcm_ : bcmdist.GBCM
        The committee
    n_features_in_, feature_names_in_ : of the inputs; names where those of a data frame are texts
    """

    task = "regression"

    def fit(self, X, y, sample_weight=None) -> Self:
        """Learn hyper-parameters from rows X (n, D) with targets y (n,), and absorb them.

        Raises children of `BcmdistError`, which are ValueErrors where data or parameters are wrong.
        """
        return self._fitted(weighted(self._rows(X, y, first=True), sample_weight))

    def partial_fit(self, X, y, sample_weight=None) -> Self:
        """Absorb further rows; the first ones as `fit` does, whose hyper-parameters and query points stay."""
        if not hasattr(self, "gbcm_"):
            return self.fit(X, y, sample_weight)
        return self._more(weighted(self._rows(X, y, first=False), sample_weight))

    def predict(self, X, return_std=False, return_cov=False, quantiles=None, X_std=None) -> Any:
        """Means of new observations at rows X (n, D): (n,).

        With `return_std` also their standard deviations (n,), with `return_cov` their joint covariance (n, n), noise
        in both; with `quantiles` those of k levels (n, k) alone. `X_std`, (n, D), (D,) or by the names of columns, are
        standard deviations of errors that X has, independent and normal, over which is averaged (`GBCM.predict`).
        """
        if not return_cov:
            return self._numbers(X, return_std, quantiles, X_std=X_std)
        if X_std is not None:
            raise InvalidOption("predict: expected one of return_cov and X_std, got both; see return_std")
        if return_std or quantiles is not None:
            raise InvalidOption("predict: expected one of return_std, return_cov and quantiles, got several; give one")
        found, snapshot = self._predictions(X), self._joint("return_cov")
        if not snapshot.model.likelihood.normal:
            raise InvalidOption(
                f"return_cov: expected a normal likelihood, got {snapshot.model.likelihood.name}; see `sample_y`"
            )
        _, covariance = self.gbcm_.predict_joint(self._new(X))
        noise = found["observation_variance"] - found["variance"]
        return found["observation_mean"], covariance + np.diag(noise)

    def predict_interval(self, X, coverage=COVERAGE, X_std=None) -> np.ndarray:
        """Lower and upper end of intervals that hold new observations with probability `coverage`: (n, 2)."""
        return self._interval(X, coverage, X_std=X_std)

    def score(self, X, y, sample_weight=None, X_std=None) -> float:
        """Share of the variance of y that means explain (R squared), 1 at best; that of the mean of y is 0."""
        return explained(y, self.predict(X, X_std=X_std), sample_weight)

    def sample_y(self, X, n_samples=1, random_state=0) -> np.ndarray:
        """Observations drawn at rows X (n, D), jointly: (n, n_samples)."""
        return self._samples(X, n_samples, random_state)
