"""Predictions of one committee, and figures of its posterior."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.requests import InputAveraging, PredictionMethod
from bcmdist.api.running import Where, runs
from bcmdist.api.stored import StoredCommittee
from bcmdist.data.groups import Location
from bcmdist.learning.evidence_refinement import evidence_gradient
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction import in_memory
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.joint.averages import DRAWS, Of
from bcmdist.runtime.interface import SerialRuntime

ONNX = "bcmdist.api.interop.onnx"  # imported on first use


@dataclass(frozen=True)
class PredictiveCommittee(StoredCommittee):
    """A committee that predicts; `EditableCommittee` adds changes."""

    def predict(
        self,
        X: ArrayLike,
        *,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        target_variance: ArrayLike | None = None,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        method: PredictionMethod | None = None,
        X_variance: ArrayLike | None = None,
        inputs: InputAveraging | None = None,
        terms: bool = False,
    ) -> dict[str, np.ndarray]:
        """Predictions at the rows of X, in original units, by name.

        Parameters
        ----------
        X : array or data frame (n, D)
        exposure, trials : one number or (n,), of the new observations, where the likelihood has them; default: 1
        target_variance : one number or (n,): known variances of the errors of the new observations, in the squared unit
            of the target, which are added to the learned noise; default: 0
        quantiles : levels between 0 and 1
        above : thresholds in the unit of the target
        method : as of `predict_zarr`
        X_variance : (n, D) or (n, D, D): variances of normal errors of X, over which predictions are averaged
        inputs : method of this average (`input_uncertainty.WAYS`)
        terms : also the terms of the kernel and the prior mean

        Returns
        -------
        `mean` and `variance` of the latent function, (n,), or (n, C) with C classes. For classes also `probability` (n,
        C) and `label` (n,); otherwise `observation_mean`, `observation_variance`, `lower95` and `upper95` (n,) of a new
        observation, for example `quantile0.9` where `quantiles` contains 0.9, and `above2.5`, the probability that the
        mean of an observation is above 2.5, where `above` contains 2.5. With `terms`: their names `term` (T,), with
        `term_mean` and `term_variance` (n, T): the means add up to `mean`.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption

        Examples
        --------
        >>> found = gbcm.predict(X[:3], quantiles=[0.9], above=[0.5])
        >>> found["mean"].shape, found["quantile0.9"].shape, found["above0.5"].shape
        ((3,), (3,), (3,))
        """
        how = {"exposure": exposure, "trials": trials, "quantiles": quantiles, "above": above, "method": method}
        how["target_variance"] = target_variance
        return in_memory.predict(self.predictive, X, X_variance=X_variance, inputs=inputs, terms=terms, **how)

    def predict_average(
        self,
        X: ArrayLike,
        groups: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        of: Of = "function",
        above: Sequence[float] = (),
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        method: PredictionMethod | None = None,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """Averages over groups of the rows of X: regions, or time spans; columns (G,) by name.

        The average is that of f, or of a new observation at each row. Not only normal likelihoods: of the means of
        observations, from joint samples. See `prediction.joint.averages`.

        Parameters
        ----------
        X : array or data frame (n, D)
        groups : a number, text or date for each row, (n,)
        weights : of a weighted average, (n,); default: all equal
        of : "function", or "observations" for averages with noise
        above : thresholds in the unit of the target
        exposure, trials, method : as of `predict`
        draws : number of joint samples
        seed : of these

        Returns
        -------
        Columns (G,): `group` and `points`, then `mean`, `sd`, `lower95` and `upper95` of the average, and `above2.5` as
        in `predict`.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption, MemoryLimit

        Examples
        --------
        >>> found = gbcm.predict_average(X, np.arange(80) % 4)
        >>> found["mean"].shape, found["points"].tolist()
        ((4,), [20, 20, 20, 20])
        """
        how = {"weights": weights, "of": of, "above": above, "exposure": exposure, "trials": trials, "method": method}
        limit = SerialRuntime().allowed_bytes
        return in_memory.predict_average(self.snapshot, X, groups, draws=draws, seed=seed, allowed_bytes=limit, **how)

    def predict_joint(self, X: ArrayLike, *, method: PredictionMethod | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and covariance of the latent f at the rows of X, in original units.

        With the rows around each point, as `predict`, unless `method` is "committee".

        Parameters
        ----------
        X : array or data frame (n, D)
        method : "committee" or "local"; default: as at fit

        Returns
        -------
        Mean (n,) and covariance (n, n).

        Raises
        ------
        InvalidData, InvalidOption, MemoryLimit

        Examples
        --------
        >>> mean, covariance = gbcm.predict_joint(X[:3])
        >>> mean.shape, covariance.shape
        ((3,), (3, 3))
        """
        return in_memory.predict_joint(self.snapshot, X, method=method, allowed_bytes=SerialRuntime().allowed_bytes)

    def sample(self, X: ArrayLike, *, size: int, seed: int = 0, method: PredictionMethod | None = None) -> FloatArray:
        """Joint samples of the latent f at the rows of X, in original units.

        Parameters
        ----------
        X : array or data frame (n, D)
        size : number of samples
        seed : of the samples
        method : as of `predict_joint`

        Returns
        -------
        Samples (size, n).

        Raises
        ------
        InvalidData, InvalidOption, MemoryLimit

        Examples
        --------
        >>> gbcm.sample(X[:3], size=5).shape
        (5, 3)
        """
        how = {"size": size, "seed": seed, "method": method}
        return in_memory.sample(self.snapshot, X, **how, allowed_bytes=SerialRuntime().allowed_bytes)

    @runs
    def effective_parameters(self, *, runtime: Where = None) -> dict[str, float]:
        """Effective degrees of freedom of the data, and as seen through the query set; see `diagnosis`.

        If `data` is well above `query`, more query points would let the committee learn more.

        Parameters
        ----------
        runtime : where to run; default: in this process

        Returns
        -------
        `data` and `query`.

        Raises
        ------
        InvalidOption
            Nothing was absorbed, classes are coupled, or inputs were moved.

        Examples
        --------
        >>> sorted(gbcm.effective_parameters())
        ['data', 'query']
        """
        with self.snapshot.held() as snapshot:
            return diagnosis.effective_parameters(snapshot, runtime)

    @runs
    def evidence_gradient(self, *, runtime: Where = None) -> dict[str, FloatArray]:
        """Gradient of `Committee.log_evidence` in the log hyper-parameters; see `evidence_refinement`.

        Parameters
        ----------
        runtime : where to run; default: in this process

        Returns
        -------
        Derivatives by name of the hyper-parameter, of its shape, such as (D,) for lengthscales, in nats.

        Raises
        ------
        InvalidOption, DataChanged

        Examples
        --------
        >>> gradient = gbcm.evidence_gradient()
        >>> gradient["kernel.variance"].shape
        (1,)
        """
        with self.snapshot.held() as snapshot:
            return evidence_gradient(snapshot, runtime)

    def calibration(self, *, seed: int = 0) -> dict[str, Any]:
        """Coverage of the reported intervals for f if the model's Gaussian process is right; see `diagnosis`.

        Parameters
        ----------
        seed : of the choice of partitions, where there are many

        Returns
        -------
        At the query points, `coverage50`, `coverage80` and `coverage95`, shares, and `variance_ratio`, actual over
        reported variance; in `at_rows`, the same at some rows; `rows` and `partitions` that this is computed from.

        Raises
        ------
        InvalidOption, MemoryLimit, DataChanged

        Examples
        --------
        >>> 0.0 <= gbcm.calibration()["coverage95"] <= 1.0
        True
        """
        return diagnosis.calibration(self.snapshot, allowed_bytes=SerialRuntime().allowed_bytes, seed=seed)

    def to_onnx(self, path: Location, *, method: PredictionMethod | None = None) -> tuple[str, ...]:
        """Export predictions as an ONNX graph; see `interop.onnx`.

        Parameters
        ----------
        path : of the new file
        method : "committee", the only one that can be exported

        Returns
        -------
        Names of the outputs, (n,) each.

        Raises
        ------
        DataExists, MissingExtra
        InvalidOption
            The export does not support the kernel or the likelihood.

        Examples
        --------
        >>> gbcm.to_onnx("model.onnx", method="committee")[:2]
        ('mean', 'std')
        """
        outputs: tuple[str, ...] = import_module(ONNX).to_onnx(self.snapshot, path, method=method)
        return outputs
