"""The facade: where partitions, experts, messages, committee and predictions meet.

    with DaskRuntime() as runtime:
        gbcm = GBCM.fit("train.zarr", Settings(query=500), model="model", runtime=runtime)
    prediction = gbcm.predict(X)

`prepare` settles everything before the first message, `absorb` hears partitions, `refine` makes further
passes; `fit` is all of them. `forget`, `reweight` and `merge` undo, weigh and join what was heard.
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from bcmdist.committee import fading, passes, revision
from bcmdist.committee.committee import Committee, query_advice
from bcmdist.committee.ingest.loop import ingest
from bcmdist.committee.ingest.options import Tally, Wishes
from bcmdist.data.dataset import check_names, open_data
from bcmdist.data.partition import Partition, partitions, refuse_overlap
from bcmdist.data.schema import UNNAMED, in_order, warn
from bcmdist.data.sources.listed import Listed
from bcmdist.data.sources.open import Source, open_source
from bcmdist.data.values import as_float
from bcmdist.errors import CommitConflict, InvalidData, InvalidDtype, InvalidOption, ModelNotFound
from bcmdist.experts.tasks import Contribution, EPExpert, Expert
from bcmdist.learning import first_commit
from bcmdist.learning.settings import Settings
from bcmdist.model.likelihoods import Observations, Softmax, task_of
from bcmdist.model.model import Model, named_parameters
from bcmdist.prediction import datasets
from bcmdist.prediction.calibration import calibration_from, fit_calibration
from bcmdist.prediction.diagnosis import diagnosis
from bcmdist.prediction.held_out import HeldOut
from bcmdist.prediction.joint import joint_latent, sample_latent
from bcmdist.prediction.local import arrange
from bcmdist.prediction.local.tasks import load_predictor
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.tasks import predict_rows, with_class_names
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.runtime.timing import Stages
from bcmdist.storage.commits import Commit, Entry, ModelStore, open_store
from bcmdist.storage.loading import Fitted, sound_committee


def _holding(method):
    """Of a committee that is used piece by piece: pruning keeps its commit meanwhile, and what is not committed yet."""

    @functools.wraps(method)
    def holding(self, *args, **options):
        with self.store.hold(self.commit):
            return method(self, *args, **options)

    return holding


def _going_on(method):
    """As `_holding`, of who makes the next commit: from the newest one, where his own has been pruned."""

    @functools.wraps(method)
    def going_on(self, *args, **options):
        with contextlib.ExitStack() as hold:
            try:
                hold.enter_context(self.store.hold(self.commit))
            except ModelNotFound:
                newest = hold.enter_context(GBCM.held(self.url))
                return method(replace(newest, _keep=self._keep), *args, **options)
            return method(self, *args, **options)

    return going_on


@dataclass(frozen=True)
class GBCM:
    """A committee with its model and ledger, as of one commit of a model directory.

    Made by `fit`, `prepare` or `load`; immutable: `absorb` returns the next one.
    """

    model: Model
    committee: Committee
    url: str
    """of the model directory"""
    commit: int
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]
    """partitions heard so far"""
    facts: dict
    """what the fit found out, JSON-ready: job, kernels tried, seconds per stage"""
    offsets: dict = field(default_factory=dict)
    """where to read on, JSON-ready, by the name of a source"""
    _keep: tuple = ()

    @classmethod
    def fit(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Fit a committee to a data set.

        Parameters
        ----------
        source : path or URL of a Zarr group, or (X, y) with X (N, D), also a data frame, and y (N,), also texts
        settings : Settings
        model : path of the model directory; kept in a temporary one by default. An unfinished fit
            of the same Zarr data with the same settings is continued.
        runtime : `SerialRuntime` by default

        Raises
        ------
        BcmdistError
            One of its children, before anything is written, where data, settings or cluster
            cannot be used (`bcmdist.errors`).
        """
        settings, runtime = settings or Settings(), runtime or SerialRuntime()
        keep, source, model = first_commit.places(source, model)
        data = open_data(source, x=settings.x, y=settings.y)
        gbcm = _opened(data, settings, model, runtime)
        gbcm = replace(gbcm, _keep=keep)
        with gbcm.store.hold(gbcm.commit):
            spread = settings.partition == "spatial"
            gbcm = arrange.arrange(gbcm, data, runtime) if spread else gbcm
            parts = arrange.cell_partitions(gbcm) if spread else partitions(data, settings.rows_per_expert)
            gbcm = gbcm.absorb(parts, runtime=runtime)
            gbcm = gbcm.refine(runtime=runtime) if passes.makes_several(settings, gbcm.facts) else gbcm
            return arrange.surround(gbcm, runtime) if spread else gbcm

    @classmethod
    def prepare(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Settle scaling, hyper-parameters and query set, and commit an empty committee.

        Parameters and errors are those of `fit`.
        """
        settings, runtime = settings or Settings(), runtime or SerialRuntime()
        keep, source, model = first_commit.places(source, model)
        data = open_data(source, x=settings.x, y=settings.y)
        gbcm = _opened(data, settings, model, runtime)
        return replace(gbcm, _keep=keep)

    @classmethod
    def load(cls, model, *, commit=None) -> "GBCM":
        """The committee of a model directory, at its newest commit or at a given one.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        store = open_store(model)
        return _from_commit(store, store.load(commit))

    @classmethod
    @contextlib.contextmanager
    def held(cls, model, *, commit=None):
        """As `load`, and kept from pruning while this is open: also between the look at what is newest and its use."""
        store = open_store(model)
        with store.opened(commit) as found:
            yield _from_commit(store, found)

    def newest(self) -> "GBCM":
        """The committee of the same directory at its newest commit."""
        return replace(GBCM.load(self.url), _keep=self._keep)

    def absorb(self, parts: list[Partition], *, same_rows="warn", runtime: Runtime | None = None) -> "GBCM":
        """Hear partitions, and commit; those in the ledger already are left out.

        Parameters
        ----------
        same_rows : "warn", "refuse" or "allow" rows that were heard under another key, and would count twice

        Raises
        ------
        DataChanged
            Rows are not those that were surveyed when the model was prepared.
        InvalidData
            Partitions have other columns than the training data, or share rows with what was heard.
        UnsupportedTarget, MemoryLimit, WorkerCannotRead, WorkerLost, LaplaceNotConverged
        """
        heard = {entry.key for entry in self.ledger} | arrange.heard_in_cells(self)
        parts = self._named(parts)
        parts = [part for part in dict.fromkeys(parts) if part.key not in heard]
        self.refuse_unlike(parts)
        refuse_overlap(parts, heard)
        if not parts:
            return self._calibrated(runtime)
        return self.ingest(Listed(tuple(parts)), Wishes(same_rows=same_rows), runtime=runtime)[0]

    def _named(self, parts):
        """Partitions with their columns in the order of the model, and its numbers of classes."""
        if self.model.schema == UNNAMED:
            return parts
        opened = {
            data: open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)
            for data in dict.fromkeys(part.data for part in parts)
        }
        match = {data: replace(data, take=o.take, recode=o.recode, inputs=o.inputs) for data, o in opened.items()}
        return [replace(part, data=match[part.data]) for part in parts]

    @_going_on
    def ingest(
        self, source: Source, wishes: Wishes | None = None, *, runtime: Runtime | None = None
    ) -> tuple["GBCM", Tally]:
        """Hear what a source delivers, once each, and commit on the way; see `bcmdist.committee.ingest.loop`."""
        runtime = runtime or SerialRuntime()
        gbcm, tally = ingest(self, source, runtime, wishes)
        return gbcm._calibrated(runtime), tally

    def hear(self, parts, runtime, *, at=None, label) -> Contribution:
        """Messages of partitions under this model, checked against the survey; nothing is committed.

        `at`: reference of the shared values given which rows are linearised; each expert's own mode by default.
        """
        task = EPExpert(self.reference) if self.facts["approximation"] == "ep" else Expert(self.reference, at)
        return self.hear_with(task, parts, runtime, label=label)

    def hear_with(self, task, parts, runtime, *, label) -> Contribution:
        """As `hear`, by another kind of expert."""
        contribution = runtime.sum(task, parts, label=label)
        chunks = first_commit.recorded_chunks(self.store, self.facts)
        first_commit.refuse_changed(
            contribution.entries.values(), self.store.get_segment(self.facts["surveyed"]), chunks
        )
        first_commit.refuse_changed(contribution.entries.values(), self.ledger, chunks)
        return contribution

    @property
    def store(self) -> ModelStore:
        """The model directory."""
        return open_store(self.url)

    def successor(self, committee, entries, *, rewrite=False, stages=None, offsets=None, **facts) -> "GBCM":
        """The next commit: another committee, further ledger entries (or all of them) and changed facts.

        `offsets` of sources that are read on from elsewhere now; the others stay.

        Raises
        ------
        CommitConflict
            Somebody else has made the next commit.
        """
        store, ledger = self.store, (*(() if rewrite else self.ledger), *entries)
        segments = store.extended(() if rewrite else self.segments, entries, after=self.commit)
        offsets = self.offsets | (offsets or {})
        stages = stages or Stages()
        facts = self.facts | {"seconds": stages.added_to(self.facts["seconds"])} | facts
        heard = {"segments": segments, "partitions": len(ledger), "offsets": offsets}
        first_commit.write_commit(store, self.commit + 1, self.model, committee, facts, **heard)
        made = {"segments": segments, "ledger": ledger, "offsets": offsets, "facts": facts}
        return replace(self, committee=committee, commit=self.commit + 1, **made)

    def written(self, store, committee, ledger, facts) -> "GBCM":
        """The first commit of another model directory with the same model."""
        heard = {"segments": store.extended((), ledger), "partitions": len(ledger)}
        first_commit.write_commit(store, 1, self.model, committee, facts, **heard)
        return _from_commit(store, store.load(1))

    def partial_fit(self, source, *, same_rows="warn", runtime: Runtime | None = None) -> "GBCM":
        """Hear the rows of another source with arrays of the same names; partitions heard before are left out.

        Parameters
        ----------
        source : path or URL of a Zarr group, of a directory of them, or of a stream; see `bcmdist.data.sources.open`
        same_rows : "warn", "refuse" or "allow" rows that were heard under another name, and would count twice

        Raises
        ------
        ChunkConflict
            A partition that was heard holds other rows now.
        SameRows
            Rows were heard under another name, and are to be refused.
        InvalidData, UnsupportedTarget, MemoryLimit, WorkerCannotRead, WorkerLost, LaplaceNotConverged
        """
        with contextlib.closing(self.source(source)) as opened:
            return self.ingest(opened, Wishes(same_rows=same_rows), runtime=runtime)[0]

    def source(self, url, *, watch=False, **options) -> Source:
        """A source of rows for this model; `watch`: one that may grow; further options of `open_source`."""
        rows, model = self.facts["rows_per_expert"], self.model
        group = f"bcmdist-{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"
        names = {"x": model.x_name, "y": model.y_name}
        return open_source(url, **names, schema=model.schema, rows_per_expert=rows, watch=watch, group=group, **options)

    @_going_on
    def refine(self, *, runtime: Runtime | None = None, most: int | None = None, tolerance=passes.TOLERANCE) -> "GBCM":
        """Make further passes until the committee stops moving (SYSTEMS I.5); see `passes.refine`."""
        return passes.refine(self, runtime or SerialRuntime(), most=most, tolerance=tolerance)

    @_going_on
    def forget(self, keys, *, runtime: Runtime | None = None) -> "GBCM":
        """Withdraw what partitions have said; see `revision.forget`."""
        runtime = runtime or SerialRuntime()
        return revision.forget(self, keys, runtime)._calibrated(runtime)

    @_going_on
    def reweight(self, weights, *, runtime: Runtime | None = None) -> "GBCM":
        """Change how much partitions count, by key; see `revision.reweight`."""
        return revision.reweight(self, weights, runtime or SerialRuntime())

    def merge(self, other: "GBCM", model) -> "GBCM":
        """The committee that has heard what both have, in a new model directory; see `revision.merge`."""
        return revision.merge(self, other, model)

    def _calibrated(self, runtime):
        """With probabilities for likelihoods that have none, from rows that are held out for the purpose."""
        rows, before = self.committee.total.rows, self.facts.get("calibration")
        if not self.model.likelihood.needs_calibration or not self.ledger:
            return self
        if before and abs(rows - before["rows"]) <= passes.RECALIBRATE_SHARE * before["rows"]:
            return self
        held_out, without = passes.without_some(self, runtime)
        if not held_out:
            return self
        arrays = {"eta": without.total.eta, "precision": without.total.precision}
        with self.store.transient(arrays) as references:
            task = HeldOut(self.reference, **references)
            found = fit_calibration(runtime.sum(task, held_out, label="calibrate"))
        try:
            return self.successor(self.committee, [], calibration=asdict(found) | {"rows": rows})
        except CommitConflict:  # who has heard more calibrates too
            return self.newest()

    def predict(self, X, *, exposure=None, trials=None, quantiles=(), method=None) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by name.

        `mean` and `variance` of the latent f, (n,), or (n, C) of C classes; for classes `probability`
        (n, C) and `label`; otherwise `observation_mean`, `observation_variance`, `lower95` and `upper95`
        of a new observation, of `exposure` or `trials` where the likelihood has them (1 by default), and
        `quantile0.9` for a level 0.9 among `quantiles`.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        X = self._inputs(X)
        companions = {"exposure": exposure, "trials": trials}
        for name, column in companions.items():
            if column is not None:
                companions[name] = self._companion(name, column, len(X))
        obs = Observations(np.full(len(X), np.nan), np.ones(len(X)), **companions)
        bad = [q for q in quantiles if not 0 < q < 1]
        if bad or (quantiles and task_of(self.model.likelihood.name) == "classification"):
            raise InvalidOption(
                f"quantiles: expected levels between 0 and 1 of numbers, got {list(quantiles)} of a "
                f"{self.model.likelihood.name} model; correct or leave them out"
            )
        said = predict_rows(self._fitted(self._method(method)), X, obs, tuple(quantiles))
        return with_class_names(self.model, said)

    def _fitted(self, method):
        if method == "local":
            return load_predictor(self.reference, method)
        return Fitted(self.model, self.committee.posterior, calibration_from(self.facts.get("calibration")))

    def _companion(self, name, column, rows):
        """Exposure or trials of new rows, (n,)."""
        values = _positive(name, column, rows)
        if name not in self.model.likelihood.companions and np.any(values != 1.0):
            raise InvalidOption(
                f"{name}: expected a likelihood that reads it, {self.model.likelihood.name} does not; leave it out"
            )
        return values

    def _scaled(self, X):
        """Checked inputs in scaled units."""
        return self.model.scaling.inputs(self._inputs(X))

    def _inputs(self, X):
        """Checked inputs in original units, in the order of the model's columns."""
        X = in_order(X, self.model.schema)
        if X.dtype.kind not in "fiub":
            raise InvalidDtype(f"X: expected real numbers, got dtype {X.dtype}; convert it to float64 first")
        X = as_float(X, "X")
        if X.ndim != 2 or X.shape[1] != self.model.inputs:
            raise InvalidData(
                f"X: expected shape (n, {self.model.inputs}), as in training, got {X.shape}; give these columns"
            )
        if not np.all(np.isfinite(X)):
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise InvalidData(
                f"X: expected finite numbers, got {X[row, column]} at row {row}, {self.model.schema.column(column)}; "
                "fill or drop it"
            )
        return X

    @_holding
    def predict_zarr(self, source, out, *, x=None, method=None, runtime: Runtime | None = None) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group; the number of rows.

        Parameters
        ----------
        x : name of the input array; the one of the training data by default
        method : "committee", or "local" with the rows around each new point; as recorded at fit by default

        Raises
        ------
        DataExists, DataNotFound, InvalidData, WorkerCannotRead
        """
        data = self._open(source, x=x, y=None)
        return datasets.predict_zarr(self, data, out, self._method(method), runtime or SerialRuntime())

    def score(self, source, *, x=None, y=None, method=None, runtime: Runtime | None = None) -> dict:
        """Scores of the predictions against the targets of a Zarr data set, in original units.

        Parameters
        ----------
        x, y : names of the input and target arrays; those of the training data by default
        method : as in `predict_zarr`

        Returns
        -------
        `rows`, and `rmse nmse mae mnlp crps coverage50 coverage80 coverage95 interval_score pit_distance pit`,
        `accuracy log_loss brier ece auc` or, of counts and lifetimes, `mnlp deviance coverage50 coverage80
        coverage95 concordance mae interval_score pit_distance pit`; numbers, but for the list
        `pit` (`bcmdist.prediction.scoring.pit`).
        Of more than 20,000 rows also `concordance_error`, a standard error, or `auc_error`, a
        bound (`bcmdist.prediction.scoring.ranking`). The `deviance` of counts is Poisson's, whatever their likelihood; that of
        lifetimes is the model's own.
        """
        scores = self.scores(source, x=x, y=y, method=method, runtime=runtime)
        return {"rows": int(scores.totals["rows"]), **scores.summary()}

    @_holding
    def scores(self, source, *, x=None, y=None, method=None, runtime: Runtime | None = None) -> Scores:
        """The totals behind `score`, which add."""
        data = self._open(source, x=x, y=y or self.model.y_name)
        return datasets.scores(self, data, self._method(method), runtime or SerialRuntime())

    def _method(self, method):
        return datasets.chosen_method(self.facts, method)

    @_holding
    def effective_parameters(self, *, runtime: Runtime | None = None) -> dict[str, float]:
        """Degrees of freedom of the data and as seen through the query set; see `diagnosis`."""
        return diagnosis.effective_parameters(self, runtime or SerialRuntime())

    @_holding
    def evidence_gradient(self, *, runtime: Runtime | None = None) -> dict[str, np.ndarray]:
        """Gradient of `committee.log_evidence` in the log hyper-parameters, by name; see `diagnosis`."""
        return diagnosis.evidence_gradient(self, runtime or SerialRuntime())

    def calibration(self, *, seed=0) -> dict:
        """How often f lies in the intervals reported, under the model's Gaussian process; see `diagnosis`."""
        return diagnosis.calibration(self, allowed_bytes=SerialRuntime().allowed_bytes, seed=seed)

    def predict_joint(self, X):
        """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D), in original units.

        Raises
        ------
        InvalidData, MemoryLimit
        """
        allowed = SerialRuntime().allowed_bytes
        mean, covariance = joint_latent(self.model.query, self._one_belief(), self._scaled(X), allowed_bytes=allowed)
        original = functools.partial(self.model.scaling.original, kind=self.model.likelihood.scaling)
        return original("mean", mean), original("variance", covariance)

    def sample(self, X, *, size, seed=0):
        """Joint samples of the latent f at the rows of X (n, D): (size, n), in original units.

        Raises
        ------
        InvalidData, MemoryLimit
        """
        allowed = SerialRuntime().allowed_bytes
        samples = sample_latent(
            self.model.query, self._one_belief(), self._scaled(X), size=size, seed=seed, allowed_bytes=allowed
        )
        return self.model.scaling.original("mean", samples, self.model.likelihood.scaling)

    def _one_belief(self):
        if self.model.likelihood.processes > 1:
            raise InvalidOption(
                f"joint prediction: expected one latent process, {self.model.likelihood.name} has "
                f"{self.model.likelihood.processes}; use predict"
            )
        return self.committee.posterior

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the data that are seen through the query set, of one latent process."""
        likelihood = self.model.likelihood
        coupled = isinstance(likelihood, Softmax) and likelihood.coupled
        return self.committee.degrees_of_freedom / (likelihood.processes if coupled else 1)

    def info(self) -> dict:
        """What the model is and what it has heard, JSON-ready."""
        query = self.model.query
        return {
            "rows": self.committee.total.rows,
            "partitions": len(self.ledger),
            "commit": self.commit,
            "query": len(query.points),
            "inputs": self.model.inputs,
            "columns": list(self.model.schema.columns),
            "p_eff": self.degrees_of_freedom,
            "advice": query_advice(
                self.degrees_of_freedom,
                len(query.points),
                self.facts["query_asked"],
                self.facts.get("degrees_estimated"),
            ),
            "log_evidence": passes.log_evidence(self.model, self.facts, self.ledger, self.committee),
            "kernel": self.model.kernel_name,
            "mean": query.mean.name,
            "likelihood": self.model.likelihood.name,
            "hyperparameters": {
                name: value.tolist() for name, value in named_parameters(query.kernel, self.model.likelihood).items()
            },
            "classes": list(self.model.schema.classes) or self.model.classes,
            "approximation": self.facts["approximation"],
            "passes": self.facts["passes"],
            "converged": passes.converged(self.facts),
            "jitter": query.jitter,
            "kernels_tried": self.facts["kernels_tried"],
            "at_bounds": self.facts["at_bounds"],
            "method": self.facts.get("method", "committee"),
            "drift": fading.told(self.ledger, self.facts),
            "fading": self.facts.get("fading"),
            "skipped": self.facts.get("skipped", []),
            "cells": self._cells_info(),
            "seconds_by_stage": self.facts["seconds"],
            "model": self.url,
        }

    def _cells_info(self):
        cells = self.facts.get("cells") or {}
        shown = {name: cells[name] for name in ("core", "around", "border_jump") if name in cells}
        return shown | {"count": self.model.cells.cells} if self.model.cells else None

    def _open(self, source, *, x, y):
        data = open_data(source, x=x or self.model.x_name, y=y, schema=self.model.schema)
        self.refuse_unlike([Partition(data, 0, data.rows)])
        check_names(data, self.model.schema)
        return data

    def refuse_unlike(self, parts: Iterable[Partition]):
        """Raise `InvalidData` where partitions have other columns than the training data."""
        for data in dict.fromkeys(part.data for part in parts if part.rows):  # who reads one without rows says why
            if data.inputs != self.model.inputs:
                open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)  # says which, where they have names
                raise InvalidData(
                    f"{data.url}: expected {self.model.inputs} columns in {data.x}, as in training, got "
                    f"{data.inputs}; give the same columns in the same order"
                )
            self._check_companions(data)

    def _check_companions(self, data):
        """Say what stands beside the targets otherwise than in training.

        Raises
        ------
        InvalidData
            Lifetimes, some of which were censored in training, do not say which are now.
        """
        known, read = self.facts.get("companions"), self.model.likelihood.companions
        if known is None:
            return
        missing = {name for name in known if name in read} - set(data.companions)
        if "event" in missing and data.y is not None:
            raise InvalidData(
                f"{data.url}: expected an array event beside {data.y}, as in training, found none: lifetimes would all "
                "count as ended; add it, 1 where one ended and 0 where it was censored"
            )
        for name in sorted(missing - {"event"}):
            warn(f"{self.url}: rows have no {name}, those of training had: 1 is taken")
        for name in sorted(set(data.companions) - {"weight", *known, *read}):
            warn(f"{self.url}: {name} is not used: the {self.model.likelihood.name} likelihood does not read it")

    @property
    def reference(self):
        """What tasks carry instead of this committee."""
        return self.store.reference(self.commit)


def _positive(name, column, rows):
    """Positive numbers of new rows, (n,); whole ones of trials."""
    try:
        values = np.broadcast_to(np.asarray(column, dtype=float), rows)
    except ValueError as error:
        raise InvalidData(f"{name}: expected one number or {rows} of them, got {column!r}; correct them") from error
    whole = name != "trials" or np.all(values == np.floor(values))
    if not whole or not np.all(np.isfinite(values) & (values > 0)):
        wanted = "positive whole numbers" if name == "trials" else "positive numbers"
        raise InvalidData(f"{name}: expected {wanted}, got {column!r}; correct them")
    return values


def _from_commit(store, commit: Commit):
    model, committee = sound_committee(store.storage.url, commit)
    return GBCM(
        model=model,
        committee=committee,
        url=store.storage.url,
        commit=commit.number,
        segments=commit.segments,
        ledger=commit.ledger,
        facts=commit.facts["fit"],
        offsets=commit.offsets,
    )


def _opened(data, settings, model, runtime):
    """The fit that a model directory holds, or a new one that has heard nothing."""
    commit = first_commit.resumed(data, settings, model, runtime) or first_commit.prepared(
        data, settings, model, runtime
    )
    return _from_commit(open_store(model), commit)
