"""`GBCM`, the main class for users: fit, update, predict with and inspect one committee.

    prediction = GBCM.fit("train.zarr", Settings(query=500), model="model").predict(X)

`fit` is `prepare`, then `absorb`, then `refine`. `forget` withdraws partitions, `reweight` changes their weights, and
`merge` adds two committees. Methods are thin: each delegates to a function of another module.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from bcmdist.api import fit, merging, refitting
from bcmdist.api.carried import write_portable
from bcmdist.api.display import health_html, summary
from bcmdist.api.places import asked, source_of_rows
from bcmdist.api.requests import RefitOptions
from bcmdist.api.running import Where, runs
from bcmdist.api.stored import StoredCommittee
from bcmdist.committee import passes, revision
from bcmdist.committee.ingest.options import IngestOptions, IngestReport, SameRows, UpdateForm
from bcmdist.committee.ingest.source import as_source, source_of
from bcmdist.committee.measurements import OnlineUpdate
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.sources.open import Source
from bcmdist.learning.evidence_refinement import evidence_gradient
from bcmdist.learning.partition_choice import as_stored
from bcmdist.learning.settings import Settings
from bcmdist.prediction import in_memory
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.joint.averages import DRAWS, Of
from bcmdist.runtime.interface import SerialRuntime

ONNX = "bcmdist.api.interop.onnx"  # imported on first use


@dataclass(frozen=True)
class GBCM(StoredCommittee):
    """A committee at one commit of a model directory. Immutable: `absorb` and the like return a new `GBCM`.

    Work runs in this process unless a method gets a `runtime`.
    """

    def __repr__(self):
        return f"GBCM({summary(self.snapshot)})"

    def _repr_html_(self):
        return health_html(self.snapshot)

    @classmethod
    @runs
    def fit(
        cls,
        source: Any,
        y: Any = None,
        settings: Settings | None = None,
        *,
        companions: Any = None,
        sphere: tuple[str, str] | None = None,
        model: Any = None,
        runtime: Where = None,
    ) -> "GBCM":
        """Fit a committee to a data set: `GBCM.fit(path, settings)`, or `GBCM.fit(X, y, settings)`.

        `source`: path or URL of a Zarr group; or X (N, D), an array or data frame, with y (N,), numbers or strings, and
        `companions`: further columns by name, such as weight (N,) or X_variance (N, D). `sphere`: columns of a data
        frame with longitude and latitude, in degrees. `model`: path of the model directory (default: a temporary one).
        `runtime`: a `Runtime`, Dask client or scheduler address (default: serial). An unfinished fit is continued.
        """
        source, settings = asked(source, y, settings, companions, sphere)
        return cls(fit.fit(source, settings, model, runtime))

    @classmethod
    @runs
    def prepare(
        cls,
        source: Any,
        y: Any = None,
        settings: Settings | None = None,
        *,
        companions: Any = None,
        sphere: tuple[str, str] | None = None,
        model: Any = None,
        runtime: Where = None,
    ) -> "GBCM":
        """Choose scaling, hyper-parameters and query points, and commit an empty committee. Arguments as for `fit`.

        The committee takes rows as they are stored or arrive, unless `settings.partition` is "spatial".
        """
        source, settings = asked(source, y, settings, companions, sphere)
        return cls(fit.prepare(source, as_stored(settings), model, runtime)[0])

    @classmethod
    def load(cls, model: Any, *, commit: int | str | None = None) -> "GBCM":
        """Load the committee of a model directory at a commit, by number or alias (default: the newest)."""
        return cls(Snapshot.load(model, commit=commit))

    @classmethod
    @contextlib.contextmanager
    def held(cls, model: Any, *, commit: int | str | None = None) -> Iterator["GBCM"]:
        """Context manager: as `load`, and the commit is protected from pruning until exit."""
        with Snapshot.opened(model, commit=commit) as snapshot:
            yield cls(snapshot)

    def save(self, model: Any) -> "GBCM":
        """Copy this committee into the new directory `model`, without the paths of its data, so that the copy cannot
        read the absorbed rows again and forget them. Raises `ModelExists`."""
        return GBCM(write_portable(self.snapshot, model))

    def newest(self) -> "GBCM":
        """The committee of the same directory at its newest commit."""
        return GBCM(self.snapshot.newest())

    def single(self, what: str) -> "GBCM":
        return self

    @runs
    def absorb(self, parts: list[Partition], *, same_rows: str = "warn", runtime: Where = None) -> "GBCM":
        """Add the partitions' messages and commit. Partitions already in the ledger are skipped.

        `same_rows`: "warn" about, "refuse" or "allow" partitions whose rows were absorbed under another key, so that
        they count twice. Raises `DataChanged` where rows have changed since the survey, `InvalidData` where columns
        differ or row ranges overlap, and errors of the runtime such as `WorkerLost`.
        """
        return GBCM(fit.absorb(self.snapshot, parts, runtime, same_rows=same_rows))

    @runs
    def ingest(
        self, source: Any, options: IngestOptions | None = None, *, runtime: Where = None
    ) -> tuple["GBCM", IngestReport]:
        """Absorb the partitions that a source, or that at a path or URL, delivers, each once; see `ingest.loop`."""
        snapshot, tally = fit.ingest_source(self.snapshot, as_source(self.snapshot, source), options, runtime)
        return GBCM(snapshot), tally

    @runs
    def partial_fit(
        self, source: Any, y: Any = None, *, companions: Any = None, same_rows: SameRows = "warn", runtime: Where = None
    ) -> "GBCM":
        """Absorb the rows of another source with arrays of the same names. Absorbed partitions are skipped.

        `source`: path or URL of a Zarr group, of a directory of Zarr groups, or of a stream; or rows X (n, D) with
        y (n,) and `companions` as in `fit`. `same_rows` as in `absorb`. Raises as `absorb`; `ChunkConflict` where an
        absorbed partition holds other rows now; `SameRows` where `same_rows` is "refuse".
        """
        source = source_of_rows(source, y, companions)
        return GBCM(fit.partial_fit(self.snapshot, source, runtime, IngestOptions(same_rows=same_rows)))

    @runs
    def update(
        self, source: Any, y: Any = None, *, companions: Any = None, form: UpdateForm = "kalman", runtime: Where = None
    ) -> tuple["GBCM", OnlineUpdate]:
        """Absorb new rows in one commit; return also the innovation and gain of this update of the belief.

        `source`, `y`, `companions` as in `partial_fit`, which does the same without the record. `form`: "kalman", the
        Kalman filter's step of mean and covariance, or "information", the sum of natural parameters: the same belief up
        to rounding (GBCM paper, Appendix B); see `committee.online_update`. Raises as `partial_fit`; `InvalidData`
        where all rows were absorbed before; `NotPositiveDefinite` where rounding leaves "kalman" no covariance.
        """
        snapshot, update = fit.update(self.snapshot, source_of_rows(source, y, companions), form, runtime)
        return GBCM(snapshot), update

    def source(self, url: Any, *, watch: bool = False, **options: Any) -> Source:
        """Open a source of rows for this model. `watch`: follow a source that grows; `options` as of `open_source`."""
        return source_of(self.snapshot, url, watch=watch, **options)

    @runs
    def refine(self, *, runtime: Where = None, most: int | None = None, tolerance: float = passes.TOLERANCE) -> "GBCM":
        """Make further passes over the data until the posterior converges (SYSTEMS I.5); see `passes.refine`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(fit.refine(snapshot, runtime, most=most, tolerance=tolerance))

    @runs
    def forget(self, keys: Any, *, runtime: Where = None) -> "GBCM":
        """Withdraw the messages of the partitions `keys`, and commit; see `revision.forget`."""
        return GBCM(fit.forget(self.snapshot, keys, runtime))

    @runs
    def reweight(self, weights: Any, *, runtime: Where = None) -> "GBCM":
        """Set the weights of partitions, by key, and commit; see `revision.reweight`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(revision.reweight(snapshot, weights, runtime))

    @runs
    def refit(self, options: RefitOptions | None = None, *, runtime: Where = None) -> "GBCM":
        """Learn hyper-parameters and query points anew, absorb the rows again, and commit; see `refitting.refit`."""
        return GBCM(refitting.refit(self.snapshot, options or RefitOptions(), runtime))

    def revert(self, to: int | str) -> "GBCM":
        """Commit the state of an earlier commit again; see `refitting.revert`."""
        return GBCM(refitting.revert(self.snapshot, to))

    @runs
    def merge(
        self,
        other: "GBCM | str | os.PathLike[str]",
        model: Any,
        *,
        query_most: int | None = None,
        runtime: Where = None,
    ) -> "GBCM":
        """Merge two committees, or one and that in a directory, into the new directory `model`; see `merging.merge`.

        If their query points differ, the result has those of both, at most `query_most`.
        """
        other = merging.other_of(other, GBCM)
        return GBCM(merging.merge(self.snapshot, other.snapshot, model, runtime, query_most=query_most))

    def predict(
        self,
        X: Any,
        *,
        exposure: Any = None,
        trials: Any = None,
        target_variance: Any = None,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        method: str | None = None,
        X_variance: Any = None,
        inputs: str | None = None,
        terms: bool = False,
    ) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by name.

        `mean` and `variance` of the latent function, (n,), or (n, C) with C classes. For classes also `probability`
        (n, C) and `label`; otherwise `observation_mean`, `observation_variance`, `lower95` and `upper95` of a new
        observation, for example `quantile0.9` where `quantiles` contains 0.9, and `above2.5`, the probability that the
        mean of an observation is above 2.5, where `above` contains 2.5. `exposure`, `trials`: of the new observations,
        where the likelihood has them (default: 1). `target_variance`, one number or (n,): known variances of their
        errors, in the squared unit of the target, which are added to the learned noise (default: 0). `method` as in
        `predict_zarr`. `X_variance` (n, D) or (n, D, D): variances of normal errors of X; predictions are averaged over
        these errors by the method `inputs` (`input_uncertainty.WAYS`). With `terms` also the names of the kernel's
        terms and of the prior mean, `term` (T,), with `term_mean` and `term_variance` (n, T): the means add up to
        `mean`. Raises `InvalidData`, `InvalidDtype`, `InvalidOption`.
        """
        how = {"exposure": exposure, "trials": trials, "quantiles": quantiles, "above": above, "method": method}
        how["target_variance"] = target_variance
        return in_memory.predict(self.predictive, X, X_variance=X_variance, inputs=inputs, terms=terms, **how)

    def predict_average(
        self,
        X: Any,
        groups: Any,
        *,
        weights: Any = None,
        of: Of = "function",
        above: Sequence[float] = (),
        exposure: Any = None,
        trials: Any = None,
        method: str | None = None,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> dict[str, np.ndarray]:
        """Averages over groups of the rows of X (n, D): regions, or time spans; columns (G,) by name.

        `groups` (n,): a number, text or date for each row. `weights` (n,): of a weighted average. Columns: `group` and
        `points`, then `mean`, `sd`, `lower95` and `upper95` of the average, and `above2.5` as in `predict`. It is that
        of f, or with `of="observations"` of a new observation at each row. Not only normal likelihoods: of the means of
        observations, from `draws` joint samples. See `prediction.joint.averages`.
        """
        how = {"weights": weights, "of": of, "above": above, "exposure": exposure, "trials": trials, "method": method}
        limit = SerialRuntime().allowed_bytes
        return in_memory.predict_average(self.snapshot, X, groups, draws=draws, seed=seed, allowed_bytes=limit, **how)

    def predict_joint(self, X: Any, *, method: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D), in original units.

        With the rows around each point, as `predict`, unless `method` is "committee".
        """
        return in_memory.predict_joint(self.snapshot, X, method=method, allowed_bytes=SerialRuntime().allowed_bytes)

    def sample(self, X: Any, *, size: int, seed: int = 0, method: str | None = None) -> np.ndarray:
        """Joint samples of the latent f at the rows of X (n, D): (size, n), in original units; as `predict_joint`."""
        how = {"size": size, "seed": seed, "method": method}
        return in_memory.sample(self.snapshot, X, **how, allowed_bytes=SerialRuntime().allowed_bytes)

    @runs
    def effective_parameters(self, *, runtime: Where = None) -> dict[str, float]:
        """Effective degrees of freedom of the data, and as seen through the query set; see `diagnosis`."""
        with self.snapshot.held() as snapshot:
            return diagnosis.effective_parameters(snapshot, runtime)

    @runs
    def evidence_gradient(self, *, runtime: Where = None) -> dict[str, np.ndarray]:
        """Gradient of `Committee.log_evidence` in the log hyper-parameters, by name; see `evidence_refinement`."""
        with self.snapshot.held() as snapshot:
            return evidence_gradient(snapshot, runtime)

    def calibration(self, *, seed: int = 0) -> dict[str, Any]:
        """Coverage of the reported intervals for f if the model's Gaussian process is right; see `diagnosis`."""
        return diagnosis.calibration(self.snapshot, allowed_bytes=SerialRuntime().allowed_bytes, seed=seed)

    def to_onnx(self, path: Any, *, method: str | None = None) -> tuple[str, ...]:
        """Export predictions as an ONNX graph. Return the names of the outputs; see `interop.onnx`."""
        return import_module(ONNX).to_onnx(self.snapshot, path, method=method)
