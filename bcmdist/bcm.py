"""The facade: where partitions, experts, messages, committee and predictions meet.

    with DaskRuntime() as runtime:
        gbcm = GBCM.fit("train.zarr", Settings(query=500), model="model", runtime=runtime)
    prediction = gbcm.predict(X)

`prepare` settles everything before the first message, `absorb` hears partitions; `fit` is both.
"""

import functools
import hashlib
import json
import shutil
import tempfile
import weakref
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bcmdist import __version__
from bcmdist.committee import Committee, query_advice
from bcmdist.dataset import LARGEST_OUTPUT_CHUNK, create_predictions, new_output, output_names, write_dataset
from bcmdist.errors import DataChanged, InvalidData, InvalidDtype, ModelExists
from bcmdist.message import zero
from bcmdist.model import Model, from_arrays, named_parameters
from bcmdist.partition import (
    Partition,
    aligned_partitions,
    describe,
    open_data,
    partitions,
    refuse_overlap,
)
from bcmdist.preparation import Stages, prepare_model, refuse_large_expert, refuse_large_prediction, survey
from bcmdist.runtime import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.settings import Settings
from bcmdist.store import Commit, Entry, LocalStorage, ModelStore, record_digest
from bcmdist.tasks import Expert, Predict, Score, committee_from, predict_rows


class _Scratch:
    """A directory that lives as long as somebody refers to it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


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
    _keep: tuple = ()

    @classmethod
    def fit(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Fit a committee to a data set.

        Parameters
        ----------
        source : path or URL of a Zarr group, or (X, y) with X (N, D) and y (N,)
        settings : Settings
        model : path of the model directory; kept in a temporary one by default. An unfinished fit
            of the same data with the same settings is continued.
        runtime : `SerialRuntime` by default

        Raises
        ------
        BcmdistError
            One of its children, before anything is written, where data, settings or cluster
            cannot be used (`bcmdist.errors`).
        """
        settings, runtime = settings or Settings(), runtime or SerialRuntime()
        keep, source, model = _places(source, model)
        data = open_data(source, x=settings.x, y=settings.y)
        gbcm = _resume(data, settings, model, runtime) or _prepare(data, settings, model, runtime)
        return replace(gbcm, _keep=keep).absorb(partitions(data, settings.rows_per_expert), runtime=runtime)

    @classmethod
    def prepare(cls, source, settings=None, *, model=None, runtime: Runtime | None = None) -> "GBCM":
        """Settle scaling, hyper-parameters and query set, and commit an empty committee.

        Parameters and errors are those of `fit`.
        """
        settings, runtime = settings or Settings(), runtime or SerialRuntime()
        keep, source, model = _places(source, model)
        data = open_data(source, x=settings.x, y=settings.y)
        gbcm = _resume(data, settings, model, runtime) or _prepare(data, settings, model, runtime)
        return replace(gbcm, _keep=keep)

    @classmethod
    def load(cls, model, *, commit=None) -> "GBCM":
        """The committee of a model directory, at its newest commit or at a given one.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        store = ModelStore(LocalStorage(model))
        return _from_commit(store, store.load(commit))

    def absorb(self, parts: list[Partition], *, runtime: Runtime | None = None) -> "GBCM":
        """Hear partitions, and commit; those in the ledger already are left out.

        Raises
        ------
        DataChanged
            Rows are not those that were surveyed when the model was prepared.
        InvalidData
            Partitions have other columns than the training data, or share rows with what was heard.
        UnsupportedTarget, MemoryLimit, WorkerCannotRead, WorkerLost, LaplaceNotConverged
        """
        runtime = runtime or SerialRuntime()
        heard = {entry.key for entry in self.ledger}
        parts = [part for part in dict.fromkeys(parts) if part.key not in heard]
        if not parts:
            return self
        self._refuse_unlike(parts)
        refuse_overlap(parts, heard)
        refuse_large_expert(parts, self.model.query, runtime, self.model.likelihood)
        store = ModelStore(LocalStorage(self.url))
        runtime.check_same(functools.partial(record_digest, self.url, self.commit), url=self.url)
        stages = Stages()
        with stages("experts"):
            contribution = runtime.sum(Expert(store.reference(self.commit)), parts, label="experts")
        _refuse_changed(contribution.entries.values(), store.get_segment(self.facts["surveyed"]))
        with stages("committee"):
            return self._commit(store, contribution, stages)

    def _commit(self, store, contribution, stages):
        committee = self.committee.absorb(contribution.message)
        entries = sorted(contribution.entries.values(), key=lambda entry: entry.key)
        segments = (*self.segments, store.put_segment(entries))
        ledger = (*self.ledger, *entries)
        facts = self.facts | {"seconds": stages.added_to(self.facts["seconds"])}
        _write_commit(store, self.commit + 1, self.model, committee, segments, facts)
        return replace(self, committee=committee, commit=self.commit + 1, segments=segments, ledger=ledger, facts=facts)

    def predict(self, X) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by name.

        `mean` and `variance` of the latent f; for regression `observation_mean`,
        `observation_variance`, `lower95` and `upper95` of a new observation; for classes
        `probability` (n, C) and `label`.

        Raises
        ------
        InvalidData
        """
        X = np.asarray(X)
        if X.dtype.kind not in "fiub":
            raise InvalidDtype(f"X: expected real numbers, got dtype {X.dtype}; convert it to float64 first")
        X = X.astype(float)
        if X.ndim != 2 or X.shape[1] != self.model.inputs:
            raise InvalidData(
                f"X: expected shape (n, {self.model.inputs}), as in training, got {X.shape}; give these columns"
            )
        if not np.all(np.isfinite(X)):
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise InvalidData(
                f"X: expected finite numbers, got {X[row, column]} at row {row}, column {column}; fill or drop it"
            )
        return predict_rows(self.model, self.committee.posterior, X, np.ones(len(X)))

    def predict_zarr(self, source, out, *, x=None, runtime: Runtime | None = None) -> int:
        """Predict at every row of a Zarr data set into a new Zarr group; the number of rows.

        Parameters
        ----------
        x : name of the input array; the one of the training data by default

        Raises
        ------
        DataExists, DataNotFound, InvalidData, WorkerCannotRead
        """
        runtime = runtime or SerialRuntime()
        data = self._open(source, x=x, y=None)
        example = self.predict(np.zeros((1, data.inputs)))
        attributes = {
            "model": self.url,
            "commit": self.commit,
            "method": "committee",
            "software": f"bcmdist {__version__}",
            "units": f"those of {self.model.y_name} in the training data; variances in their square",
        }
        refuse_large_prediction(data, self.model.query, runtime)
        self._check_readable(runtime, data)
        with new_output(out) as place:
            rows = create_predictions(place, data, example, attributes)
            runtime.check_same(functools.partial(output_names, place), url=out)
            return runtime.sum(Predict(self._reference(), place), aligned_partitions(data, rows), label="predict")

    def score(self, source, *, x=None, y=None, runtime: Runtime | None = None) -> dict[str, float]:
        """Scores of the predictions against the targets of a Zarr data set, in original units.

        Parameters
        ----------
        x, y : names of the input and target arrays; those of the training data by default

        Returns
        -------
        `rows`, and `rmse nmse mae mnlp crps coverage95 interval_score` or
        `accuracy log_loss brier ece auc`
        """
        runtime = runtime or SerialRuntime()
        data = self._open(source, x=x, y=y or self.model.y_name)
        refuse_large_prediction(data, self.model.query, runtime)
        self._check_readable(runtime, data)
        parts = aligned_partitions(data, min(data.chunk_rows, LARGEST_OUTPUT_CHUNK))
        scores = runtime.sum(Score(self._reference()), parts, label="score")
        return {"rows": data.rows, **scores.summary()}

    def info(self) -> dict:
        """What the model is and what it has heard, JSON-ready."""
        query = self.model.query
        return {
            "rows": self.committee.total.rows,
            "partitions": len(self.ledger),
            "commit": self.commit,
            "query": len(query.points),
            "inputs": self.model.inputs,
            "p_eff": self.committee.degrees_of_freedom,
            "advice": query_advice(self.committee.degrees_of_freedom, len(query.points), self.facts["query_asked"]),
            "log_evidence": self.committee.log_evidence,
            "kernel": self.model.kernel_name,
            "mean": query.mean.name,
            "likelihood": self.model.likelihood.name,
            "hyperparameters": {
                name: value.tolist() for name, value in named_parameters(query.kernel, self.model.likelihood).items()
            },
            "jitter": query.jitter,
            "kernels_tried": self.facts["kernels_tried"],
            "at_bounds": self.facts["at_bounds"],
            "seconds_by_stage": self.facts["seconds"],
            "model": self.url,
        }

    def _open(self, source, *, x, y):
        data = open_data(source, x=x or self.model.x_name, y=y)
        self._refuse_unlike([Partition(data, 0, data.rows)])
        return data

    def _refuse_unlike(self, parts):
        for data in dict.fromkeys(part.data for part in parts):
            if data.inputs != self.model.inputs:
                raise InvalidData(
                    f"{data.url}: expected {self.model.inputs} columns in {data.x}, as in training, got "
                    f"{data.inputs}; give the same columns in the same order"
                )

    def _reference(self):
        return ModelStore(LocalStorage(self.url)).reference(self.commit)

    def _check_readable(self, runtime, data):
        runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
        runtime.check_same(functools.partial(record_digest, self.url, self.commit), url=self.url)


def _places(source, model):
    """What must be kept alive, the data's URL and the model's path, scratch ones where not given."""
    keep = []
    if isinstance(source, tuple):
        keep.append(_Scratch())
        path = Path(keep[-1].path, "data.zarr")
        X, y = (np.asarray(part) for part in source)
        if X.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
            raise InvalidDtype(f"X, y: expected real numbers, got {X.dtype} and {y.dtype}; convert them to float64")
        write_dataset(path, {"X": X, "y": y})
        source = path
    if model is None:
        keep.append(_Scratch())
        model = Path(keep[-1].path, "model")
    return tuple(keep), source, model


def _resume(data, settings, model, runtime):
    """The unfinished (or finished) fit that a model directory holds, or None where it is empty.

    Raises
    ------
    ModelExists
        It holds something else.
    DataChanged
        The data are not those that were surveyed.
    """
    store = ModelStore(LocalStorage(model))
    if store.head() == 0:
        if store.foreign():
            raise ModelExists(f"{model}: expected a new or empty directory, it holds other files; choose another one")
        return None
    gbcm = _from_commit(store, store.load())
    if gbcm.facts["job"] != _job(data, settings):
        raise ModelExists(
            f"{model}: expected a new directory or the same fit to continue, it holds a fit of other data or "
            "settings; choose another --model, or remove it"
        )
    _refuse_changed(survey(data, settings, runtime).entries.values(), store.get_segment(gbcm.facts["surveyed"]))
    return gbcm


def _job(data, settings):
    """Hash of what a fit was asked to do."""
    job = {"data": describe(data.url, data.x, data.y), "url": data.url, "settings": asdict(settings)}
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


def _from_commit(store, commit: Commit):
    return GBCM(
        model=from_arrays(commit.arrays, commit.facts["model"]),
        committee=committee_from(commit.arrays, commit.facts),
        url=store.storage.url,
        commit=commit.number,
        segments=commit.segments,
        ledger=commit.ledger,
        facts=commit.facts["fit"],
    )


def _write_commit(store, number, model, committee, segments, facts):
    arrays, model_facts = model.to_arrays()
    total = committee.total
    arrays |= {"eta": total.eta, "precision": total.precision}
    all_facts = {"model": model_facts, "fit": facts, "evidence": total.evidence, "rows": total.rows}
    return store.commit(number, arrays=store.put_arrays(arrays), facts=all_facts, segments=segments)


def _prepare(data, settings, model, runtime):
    """A committee that has heard nothing, committed."""
    store = ModelStore(LocalStorage(model))
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    with store.canary() as probe:
        runtime.check_same(probe, url=store.storage.url)
    stages = Stages()
    with stages("survey"):
        surveyed = survey(data, settings, runtime)
    try:
        prepared, found = prepare_model(data, surveyed, settings, runtime, store, stages)
        facts = {"job": _job(data, settings), "data": data.url, "query_asked": settings.query, **found}
        facts |= {"surveyed": store.put_segment(list(surveyed.entries.values())), "seconds": stages.seconds}
        _write_commit(store, 1, prepared, Committee(zero(prepared.query.shared)), (), facts)
    except BaseException:
        store.discard_uncommitted()
        raise
    return _from_commit(store, store.load(1))


def _refuse_changed(entries, surveyed):
    """Raise `DataChanged` where rows differ from what was surveyed under the same key."""
    before = {entry.key: entry.digest for entry in surveyed}
    for entry in entries:
        if before.get(entry.key, entry.digest) != entry.digest:
            raise DataChanged(
                f"{entry.key}: expected the rows that were surveyed ({before[entry.key][:12]}), read others "
                f"({entry.digest[:12]}); do not change data that a model is being fitted to: fit a new --model"
            )
