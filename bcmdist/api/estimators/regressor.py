"""`GBCMRegressor`: scikit-learn regressor with the parameters that all estimators share."""

from collections.abc import Sequence
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.estimators.numbers import COVERAGE, NumberEstimator
from bcmdist.api.estimators.rows import Deviations, weighted, with_variances
from bcmdist.api.estimators.scikit import explained
from bcmdist.api.lazy import Lazy
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray


class GBCMRegressor(NumberEstimator):
    """Regression by a Bayesian committee machine.

    Parameters
    ----------
    kernel : str, default "auto"
        Name of the covariance function, such as "matern52"; names may be combined by + and *. "auto": the kernel that
        predicts held-out rows best
    mean : {"auto", "constant", "zero", "linear"}
        Prior mean function
    likelihood : str, default None
        Distribution of the targets given the latent function. None: normal noise
    expert : str, default "bcm"
        Shared variables of the experts and treatment of the residual: bcm, fitc, mnnmix, rvm, fourier, ...
    query : int or "auto", default None
        Largest number of query (inducing) points, which all experts share. None: 500
    rows_per_expert : int, default None
        Approximate number of rows per partition. None: the expert's default, mostly 1000
    partition : {"auto", "chunks", "spatial"}
        Partition rows as they are stored, or by neighbourhood, which enables predictions from the rows around new
        points. "auto": by neighbourhood where a fit allows for it and there are more rows than query points; as they
        arrive for `partial_fit`
    passes : {None, "1", "auto"}
        Number of passes over the data
    noise : {"auto", "constant", "varying"}
        Whether the noise variance depends on the inputs
    target_transform : {"auto", "none", "log", "power"}
        Transform of positive targets with normal errors. "auto": that which predicts held-out rows best; predictions
        are in original units
    effort : {"normal", "quick", "thorough"}
        How much time to spend on learning hyper-parameters
    missing : {"auto", "error"}
        Gaps of a data frame. "auto": filled with the mean and marked by an indicator input, with a warning. "error":
        refused
    unseen : {"other", "error"}
        Levels of categories that training lacks. "other": taken for random ones of those that are there. "error":
        refused
    sphere : pair of str, default None
        Columns of a data frame with longitude and latitude, in degrees: a point on the unit sphere, with one
        lengthscale, in place of two numbers
    options : dict, default None
        Further fields of `bcmdist.Settings` by name
    random_state : int, RandomState instance or None, default 0
    runtime : None, address of a Dask scheduler, or Dask client
        Where to fit. Rows are written to the directory for temporary files, which workers must be able to read. None:
        in this process; in a notebook or at a prompt, a temporary local cluster for 50,000 rows or more. Predictions
        run in this process, those for dask collections where the collection is computed

    Rows may be arrays, data frames, or dask arrays and data frames, which are read block by block. Integer values of
    `sample_weight` repeat rows. Other weights divide the variance of normal noise and multiply other log likelihoods;
    so do integer weights whose sum exceeds ten times the number of rows, and all weights beside known variances of the
    errors of targets (`target_variance`), which are added to the variance of normal noise.

    Attributes
    ----------
    gbcm_ : bcmdist.GBCM
        The fitted committee
    n_features_in_ : number of columns of X
    feature_names_in_ : their names, where X is a data frame whose column names are strings

    Raises
    ------
    InvalidOption
        From `fit`: a parameter is outside its bounds, or parameters exclude each other.

    Examples
    --------
    >>> model = bcmdist.GBCMRegressor(kernel="se", query=20, effort="quick").fit(X, y)
    >>> mean, sd = model.predict(X[:3], return_std=True)
    >>> mean.shape, sd.shape
    ((3,), (3,))
    """

    task = "regression"

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        target_variance: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Learn hyper-parameters from rows, and absorb them.

        Parameters
        ----------
        X : array, data frame or dask collection (n, D)
        y : targets (n,)
        sample_weight : (n,); see the class
        target_variance : known variances of the errors of targets, (n,) or one number, in the squared unit of y
        X_std : standard deviations of the errors of X, as in `predict`; rows are then learned from and absorbed at the
            inputs that are most probable given these (`options={"noisy_inputs": "hmc"}`: at draws of them)

        Raises
        ------
        BcmdistError
            Also a ValueError where data or parameters are wrong.
        """
        return self._fitted(self._measured(X, y, sample_weight, target_variance, X_std, first=True))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        target_variance: ArrayLike | None = None,
        X_std: Deviations | None = None,
    ) -> Self:
        """Absorb further rows. The first call fits, and its hyper-parameters and query points are kept.

        With `partition="auto"` the first call partitions rows as they arrive, since more will follow. Arguments as of
        `GBCMRegressor.fit`.
        """
        first = not hasattr(self, "gbcm_")
        arrays = self._measured(X, y, sample_weight, target_variance, X_std, first=first)
        return self._fitted(arrays, streamed=True) if first else self._more(arrays)

    def _measured(
        self, X: Any, y: Any, sample_weight: Any, target_variance: Any, X_std: Any, *, first: bool
    ) -> dict[str, np.ndarray]:
        arrays = self._with_errors(with_variances(self._rows(X, y, first=first), target_variance), X_std)
        return weighted(arrays, sample_weight)

    @overload
    def predict(self, X: Lazy) -> Any: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
        target_variance: ArrayLike | None = None,
    ) -> FloatArray: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
        quantiles: None = None,
        X_std: Deviations | None = None,
        target_variance: ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        *,
        return_cov: Literal[True],
        quantiles: None = None,
        X_std: None = None,
        target_variance: ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]: ...
    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
        target_variance: ArrayLike | None = None,
    ) -> Any: ...
    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        quantiles: Sequence[float] | None = None,
        X_std: Deviations | None = None,
        target_variance: ArrayLike | None = None,
    ) -> Any:
        """Return means of new observations at rows X: (n,).

        Parameters
        ----------
        X : array, data frame or dask collection (n, D)
        return_std : also return their standard deviations (n,), which include noise
        return_cov : also return their joint covariance (n, n), which includes noise
        quantiles : k levels; return only these quantiles, (n, k)
        X_std : standard deviations of independent normal errors of X, (n, D), (D,) or by column name; predictions are
            averaged over these errors
        target_variance : known variances of the errors of the new observations, (n,) or one number, which are added to
            the learned noise

        Returns
        -------
        Means (n,), with what else is asked for; or quantiles (n, k). In the unit of y.

        Raises
        ------
        InvalidData, InvalidOption
        """
        if not return_cov:
            return self._numbers(X, return_std, quantiles, X_std=X_std, target_variance=target_variance)
        if X_std is not None:
            raise InvalidOption("predict: expected one of return_cov and X_std, got both; see return_std")
        if return_std or quantiles is not None:
            raise InvalidOption("predict: expected one of return_std, return_cov and quantiles, got several; give one")
        found, snapshot = self._predictions(X, target_variance=target_variance), self.gbcm_.snapshot
        if not snapshot.model.normal:
            raise InvalidOption(
                f"return_cov: expected normal errors, got {snapshot.model.error_name}; give target_transform='none' "
                "and likelihood=None, or see `sample_y`"
            )
        _, covariance = self.gbcm_.predict_joint(self._new(X), method=self.gbcm_.chosen_method())
        noise = found["observation_variance"] - found["variance"]
        return found["observation_mean"], covariance + np.diag(noise)

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = COVERAGE,
        X_std: Deviations | None = None,
        target_variance: ArrayLike | None = None,
    ) -> FloatArray:
        """Return central intervals that contain new observations with probability `coverage`: (n, 2).

        `X_std` and the others as of `GBCMRegressor.predict`.
        """
        return self._interval(X, coverage, X_std=X_std, target_variance=target_variance)

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, X_std: Deviations | None = None
    ) -> float:
        """Return R squared: the share of the variance of y that the predicted means explain; at most 1.

        Weights as of `GBCMRegressor.fit`, errors of X as of `GBCMRegressor.predict`.
        """
        return explained(y, self.predict(X, X_std=X_std), sample_weight)

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> FloatArray:
        """Return joint samples of observations at rows X (n, D): (n, n_samples).

        `n_samples`: their number. `random_state`: seed.
        """
        return self._samples(X, n_samples, random_state)
