"""The facade: what a user does with a committee, each verb in a line or two.

    prediction = GBCM.fit("train.zarr", Settings(query=500), model="model").predict(X)

`fit` is `prepare`, `absorb` and `refine`; `forget`, `reweight` and `merge` undo, weigh and join what was absorbed.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from bcmdist.api import fit, merging
from bcmdist.api.advice import advised
from bcmdist.api.carried import write_portable
from bcmdist.api.display import health_html, summary
from bcmdist.api.facade import Facade
from bcmdist.api.info import info
from bcmdist.api.places import asked
from bcmdist.api.relevance import Lengthscales, lengthscales
from bcmdist.api.running import Where, runs
from bcmdist.committee import fading, passes, revision
from bcmdist.committee.committee import Committee
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.source import source_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.sources.open import Source
from bcmdist.learning.evidence.gradient import evidence_gradient
from bcmdist.model.model import Model
from bcmdist.prediction import in_memory
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.predictive_model import CommitteeModel
from bcmdist.prediction.predictors import warn_of_rows_outside
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.ledger import Entry

ONNX = "bcmdist.api.interop.onnx"  # loaded when a graph is asked for


@dataclass(frozen=True)
class GBCM(Facade):
    """A committee at one commit of a model directory; immutable: `absorb` gives the next. Serial by default."""

    snapshot: Snapshot

    def __repr__(self):
        return f"GBCM({summary(self.snapshot)})"

    def _repr_html_(self):
        return health_html(self.snapshot)

    @classmethod
    @runs
    def fit(cls, source, y=None, settings=None, *, companions=None, model=None, runtime: Where = None) -> "GBCM":
        """Fit a committee to a data set: `GBCM.fit(path, settings)`, or `GBCM.fit(X, y, settings)`.

        `source`: path or URL of a Zarr group; or X (N, D), also a data frame, with y (N,), also texts, and `companions`
        by name, such as weight (N,) or X_variance (N, D); `settings`: `Settings`; `model`: path of the model directory,
        a temporary one by default; `runtime`: a `Runtime`, Dask client or address, serial by default. The same fit, if
        unfinished, is continued. Raises children of `BcmdistError` before anything is written.
        """
        source, settings = asked(source, y, settings, companions)
        return cls(fit.fit(source, settings, model, runtime))

    @classmethod
    @runs
    def prepare(cls, source, y=None, settings=None, *, companions=None, model=None, runtime: Where = None) -> "GBCM":
        """Settle scaling, hyper-parameters and query set, and commit an empty committee; otherwise as `fit`."""
        source, settings = asked(source, y, settings, companions)
        return cls(fit.prepare(source, settings, model, runtime)[0])

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

    def save(self, model) -> "GBCM":
        """The same in a new model directory, for a move: rows in memory cannot be read there; `ModelExists`."""
        return GBCM(write_portable(self.snapshot, model))

    def newest(self) -> "GBCM":
        """The committee of the same directory at its newest commit."""
        return GBCM(self.snapshot.newest())

    @property
    def predictive(self) -> CommitteeModel:
        return CommitteeModel(self.snapshot)

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
        """Partitions absorbed so far."""
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

    def single(self, what) -> "GBCM":
        return self

    def info(self) -> dict:
        """What the model is and what it has absorbed, JSON-ready."""
        warn_of_rows_outside(self.snapshot)
        return info(self.snapshot)

    def advised(self) -> list[str]:
        """Advice about the fit, a sentence each."""
        return advised(self.snapshot)

    def lengthscales(self) -> list[Lengthscales]:
        """By part of the kernel and feature."""
        return lengthscales(self.snapshot)

    @runs
    def absorb(self, parts: list[Partition], *, same_rows="warn", runtime: Where = None) -> "GBCM":
        """Absorb partitions, and commit; those in the ledger already are left out.

        `same_rows`: "warn", "refuse" or "allow" rows absorbed under another key, which would count twice. `DataChanged`
        where rows are not as surveyed, `InvalidData` where columns differ or rows overlap; `WorkerLost`, say.
        """
        return GBCM(fit.absorb(self.snapshot, parts, runtime, same_rows=same_rows))

    @runs
    def ingest(
        self, source: Source, wishes: IngestOptions | None = None, *, runtime: Where = None
    ) -> tuple["GBCM", IngestReport]:
        """Absorb what a source delivers, once each, and commit on the way; see `bcmdist.committee.ingest.loop`."""
        snapshot, tally = fit.ingest_source(self.snapshot, source, wishes, runtime)
        return GBCM(snapshot), tally

    @runs
    def partial_fit(self, source, y=None, *, companions=None, same_rows="warn", runtime: Where = None) -> "GBCM":
        """Absorb the rows of another source with arrays of the same names; partitions absorbed before are left out.

        `source`: path or URL of a Zarr group, of a directory of them, or of a stream; or rows X (n, D) with y (n,) and
        `companions` as in `fit`; `same_rows` as in `absorb`. Raises as `absorb`; `ChunkConflict` where a partition that
        was absorbed holds other rows now, `SameRows` as asked.
        """
        source, _ = asked(source, y, None, companions)
        return GBCM(fit.partial_fit(self.snapshot, source, runtime, same_rows=same_rows))

    def source(self, url, *, watch=False, **options) -> Source:
        """A source of rows for this model; `watch`: one that may grow; further options of `open_source`."""
        return source_of(self.snapshot, url, watch=watch, **options)

    @runs
    def refine(self, *, runtime: Where = None, most: int | None = None, tolerance=passes.TOLERANCE) -> "GBCM":
        """Make further passes until the committee stops moving (SYSTEMS I.5); see `passes.refine`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(fit.refine(snapshot, runtime, most=most, tolerance=tolerance))

    @runs
    def forget(self, keys, *, runtime: Where = None) -> "GBCM":
        """Withdraw what partitions have said; see `revision.forget`."""
        return GBCM(fit.forget(self.snapshot, keys, runtime))

    @runs
    def reweight(self, weights, *, runtime: Where = None) -> "GBCM":
        """Change how much partitions count, by key; see `revision.reweight`."""
        with self.snapshot.going_on() as snapshot:
            return GBCM(revision.reweight(snapshot, weights, runtime))

    @runs
    def merge(self, other: "GBCM", model, *, runtime: Where = None) -> "GBCM":
        """The committee of both, in a new model directory, calibrated by the rows of both; see `merging.merge`."""
        return GBCM(merging.merge(self.snapshot, other.snapshot, model, runtime))

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
        return in_memory.predict(self.predictive, X, X_variance=X_variance, inputs=inputs, **how)

    def predict_joint(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D), in original units."""
        return in_memory.predict_joint(self.snapshot, X, allowed_bytes=SerialRuntime().allowed_bytes)

    def sample(self, X, *, size, seed=0) -> np.ndarray:
        """Joint samples of the latent f at the rows of X (n, D): (size, n), in original units."""
        return in_memory.sample(self.snapshot, X, size=size, seed=seed, allowed_bytes=SerialRuntime().allowed_bytes)

    @runs
    def effective_parameters(self, *, runtime: Where = None) -> dict[str, float]:
        """Degrees of freedom of the data and as seen through the query set; see `diagnosis`."""
        with self.snapshot.held() as snapshot:
            return diagnosis.effective_parameters(snapshot, runtime)

    @runs
    def evidence_gradient(self, *, runtime: Where = None) -> dict[str, np.ndarray]:
        """Gradient of `committee.log_evidence` in the log hyper-parameters, by name; see `evidence.gradient`."""
        with self.snapshot.held() as snapshot:
            return evidence_gradient(snapshot, runtime)

    def calibration(self, *, seed=0) -> dict:
        """How often f lies in the intervals reported, under the model's Gaussian process; see `diagnosis`."""
        return diagnosis.calibration(self.snapshot, allowed_bytes=SerialRuntime().allowed_bytes, seed=seed)

    def to_onnx(self, path, *, method=None) -> tuple[str, ...]:
        """Write its predictions as an ONNX graph, with deviations; the names of its outputs. See `interop.onnx`."""
        return import_module(ONNX).to_onnx(self.snapshot, path, method=method)
