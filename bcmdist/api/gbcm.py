"""The facade: what a user does with a committee, each verb in a line or two.

    with DaskRuntime() as runtime:
        gbcm = GBCM.fit("train.zarr", Settings(query=500), model="model", runtime=runtime)
    prediction = gbcm.predict(X)

`prepare` settles everything before the first message, `absorb` hears partitions, `refine` makes further
passes; `fit` is all of them. `forget`, `reweight` and `merge` undo, weigh and join what was heard.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bcmdist.api import fit
from bcmdist.api.info import info
from bcmdist.committee import fading, passes, revision
from bcmdist.committee.committee import Committee
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.source import source_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.sources.open import Source
from bcmdist.learning.evidence.gradient import evidence_gradient
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model
from bcmdist.prediction import datasets, in_memory
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.predictors import chosen_method
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.ledger import Entry


@dataclass(frozen=True)
class GBCM:
    """A committee with its model and ledger, as of one commit of a model directory.

    Made by `fit`, `prepare` or `load`; immutable: `absorb` returns the next one. Runtimes are serial by default.
    """

    snapshot: Snapshot

    # --- Making one ---

    @classmethod
    def fit(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Fit a committee to a data set.

        `source`: path or URL of a Zarr group, or (X, y) with X (N, D), also a data frame, and y (N,), also texts;
        `settings`: `Settings`; `model`: path of the model directory, a temporary one by default. The same fit, if
        unfinished, is continued. Raises children of `BcmdistError` before anything is written, where data, settings
        or cluster cannot be used.
        """
        return cls(fit.fit(source, settings or Settings(), model, runtime or SerialRuntime()))

    @classmethod
    def prepare(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Settle scaling, hyper-parameters and query set, and commit an empty committee; otherwise as `fit`."""
        return cls(fit.prepare(source, settings or Settings(), model, runtime or SerialRuntime())[0])

    @classmethod
    def load(cls, model, *, commit=None) -> "GBCM":
        """The committee of a model directory, at its newest commit or at a given one; else `ModelNotFound`, say."""
        return cls(Snapshot.load(model, commit=commit))

    @classmethod
    @contextlib.contextmanager
    def held(cls, model, *, commit=None) -> Iterator["GBCM"]:
        """As `load`, and kept from pruning while this is open."""
        with Snapshot.opened(model, commit=commit) as snapshot:
            yield cls(snapshot)

    def newest(self) -> "GBCM":
        """The committee of the same directory at its newest commit."""
        return GBCM(self.snapshot.newest())

    # --- What it is ---

    @property
    def model(self) -> Model:
        return self.snapshot.model

    @property
    def committee(self) -> Committee:
        return self.snapshot.committee

    @property
    def url(self) -> str:
        """Of the model directory."""
        return self.snapshot.url

    @property
    def commit(self) -> int:
        return self.snapshot.commit

    @property
    def ledger(self) -> tuple[Entry, ...]:
        """Partitions heard so far."""
        return self.snapshot.ledger

    @property
    def weights(self) -> dict[str, float]:
        """What partitions of the ledger count now, by key."""
        return fading.weights(self.snapshot.facts.fading, self.ledger)

    @property
    def facts(self) -> dict:
        """What the fit found out, JSON-ready: job, kernels tried, seconds per stage."""
        return self.snapshot.facts.to_json()

    @property
    def store(self) -> ModelStore:
        """The model directory: its history, and what pruning keeps."""
        return self.snapshot.store

    @property
    def offsets(self) -> dict:
        """Where to read on, JSON-ready, by the name of a source."""
        return self.snapshot.offsets

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the data that are seen through the query set, of one latent process."""
        return self.snapshot.degrees_of_freedom

    def info(self) -> dict:
        """What the model is and what it has heard, JSON-ready."""
        return info(self.snapshot)

    # --- Hearing ---

    def absorb(self, parts: list[Partition], *, same_rows="warn", runtime: Runtime | None = None) -> "GBCM":
        """Hear partitions, and commit; those in the ledger already are left out.

        `same_rows`: "warn", "refuse" or "allow" rows that were heard under another key, and would count twice.

        Raises `DataChanged` where rows are not those that were surveyed when the model was prepared, `InvalidData`
        where partitions have other columns than the training data, or share rows with what was heard; and
        `UnsupportedTarget`, `MemoryLimit`, `WorkerCannotRead`, `WorkerLost`, `LaplaceNotConverged`.
        """
        return GBCM(fit.absorb(self.snapshot, parts, runtime or SerialRuntime(), same_rows=same_rows))

    def ingest(
        self, source: Source, wishes: IngestOptions | None = None, *, runtime: Runtime | None = None
    ) -> tuple["GBCM", IngestReport]:
        """Hear what a source delivers, once each, and commit on the way; see `bcmdist.committee.ingest.loop`."""
        snapshot, tally = fit.ingest_source(self.snapshot, source, wishes, runtime or SerialRuntime())
        return GBCM(snapshot), tally

    def partial_fit(self, source, *, same_rows="warn", runtime: Runtime | None = None) -> "GBCM":
        """Hear the rows of another source with arrays of the same names; partitions heard before are left out.

        `source`: path or URL of a Zarr group, of a directory of them, or of a stream; `same_rows` as in `absorb`.

        Raises as `absorb`; `ChunkConflict` where a partition that was heard holds other rows now, `SameRows` as asked.
        """
        with contextlib.closing(self.source(source)) as opened:
            return self.ingest(opened, IngestOptions(same_rows=same_rows), runtime=runtime)[0]

    def source(self, url, *, watch=False, **options) -> Source:
        """A source of rows for this model; `watch`: one that may grow; further options of `open_source`."""
        return source_of(self.snapshot, url, watch=watch, **options)

    def refine(self, *, runtime: Runtime | None = None, most: int | None = None, tolerance=passes.TOLERANCE) -> "GBCM":
        """Make further passes until the committee stops moving (SYSTEMS I.5); see `passes.refine`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(fit.refine(snapshot, runtime or SerialRuntime(), most=most, tolerance=tolerance))

    # --- Second thoughts ---

    def forget(self, keys, *, runtime: Runtime | None = None) -> "GBCM":
        """Withdraw what partitions have said; see `revision.forget`."""
        return GBCM(fit.forget(self.snapshot, keys, runtime or SerialRuntime()))

    def reweight(self, weights, *, runtime: Runtime | None = None) -> "GBCM":
        """Change how much partitions count, by key; see `revision.reweight`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(revision.reweight(snapshot, weights, runtime or SerialRuntime()))

    def merge(self, other: "GBCM", model) -> "GBCM":
        """The committee that has heard what both have, in a new model directory; see `revision.merge`."""
        return GBCM(revision.merge(self.snapshot, other.snapshot, model))

    # --- Predicting ---

    def chosen_method(self, method=None) -> str:
        """The given method, or the one recorded at fit; `InvalidOption` where the model lacks what it needs."""
        return chosen_method(self.snapshot, method)

    def predict(
        self, X, *, exposure=None, trials=None, quantiles=(), method=None, X_variance=None, inputs=None
    ) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by name.

        `mean` and `variance` of the latent f, (n,), or (n, C) of C classes; for classes `probability` (n, C) and
        `label`; otherwise `observation_mean`, `observation_variance`, `lower95` and `upper95` of a new observation,
        of `exposure` or `trials` where the likelihood has them (1 by default), and `quantile0.9` for a level 0.9 among
        `quantiles`. `method` as in `predict_zarr`. `X_variance`, (n, D) or (n, D, D): of normal errors of the inputs,
        averaged over by `inputs` (`uncertain.ways.WAYS`). Raises `InvalidData`, `InvalidDtype`, `InvalidOption`.
        """
        how = {"exposure": exposure, "trials": trials, "quantiles": quantiles, "method": method}
        return in_memory.predict(self.snapshot, X, X_variance=X_variance, inputs=inputs, **how)

    def predict_zarr(self, source, out, *, x=None, method=None, inputs=None, runtime: Runtime | None = None) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group; the number of rows.

        `x`: name of the input array, that of the training data by default; `method`: "committee", or "local" with the
        rows around each new point, or one that was registered, as recorded at fit by default; `inputs` as of
        `predict`, where X_variance is beside X. Raises `DataExists`, `DataNotFound`, `InvalidData`, `WorkerCannotRead`.
        """
        with self.snapshot.held() as snapshot:
            data = datasets.open_new_rows(snapshot, source, x=x, y=None)
            return datasets.predict_zarr(snapshot, data, out, method, inputs, runtime or SerialRuntime())

    def score(self, source, *, x=None, y=None, method=None, inputs=None, runtime: Runtime | None = None) -> dict:
        """`rows`, and scores of predictions against the targets of a Zarr data set, as named by `Scores.summary`."""
        scores = self.scores(source, x=x, y=y, method=method, inputs=inputs, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    def scores(self, source, *, x=None, y=None, method=None, inputs=None, runtime: Runtime | None = None) -> Scores:
        """The totals behind `score`, which add; `x` and `y` are names of the arrays, those in training by default."""
        with self.snapshot.held() as snapshot:
            data = datasets.open_new_rows(snapshot, source, x=x, y=y or self.model.y_name)
            return datasets.scores(snapshot, data, method, inputs, runtime or SerialRuntime())

    def predict_joint(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D), in original units."""
        return in_memory.predict_joint(self.snapshot, X, allowed_bytes=SerialRuntime().allowed_bytes)

    def sample(self, X, *, size, seed=0) -> np.ndarray:
        """Joint samples of the latent f at the rows of X (n, D): (size, n), in original units."""
        return in_memory.sample(self.snapshot, X, size=size, seed=seed, allowed_bytes=SerialRuntime().allowed_bytes)

    # --- Diagnosis ---

    def effective_parameters(self, *, runtime: Runtime | None = None) -> dict[str, float]:
        """Degrees of freedom of the data and as seen through the query set; see `diagnosis`."""
        with self.snapshot.held() as snapshot:
            return diagnosis.effective_parameters(snapshot, runtime or SerialRuntime())

    def evidence_gradient(self, *, runtime: Runtime | None = None) -> dict[str, np.ndarray]:
        """Gradient of `committee.log_evidence` in the log hyper-parameters, by name; see `evidence.gradient`."""
        with self.snapshot.held() as snapshot:
            return evidence_gradient(snapshot, runtime or SerialRuntime())

    def calibration(self, *, seed=0) -> dict:
        """How often f lies in the intervals reported, under the model's Gaussian process; see `diagnosis`."""
        return diagnosis.calibration(self.snapshot, allowed_bytes=SerialRuntime().allowed_bytes, seed=seed)
