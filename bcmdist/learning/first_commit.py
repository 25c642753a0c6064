"""How a fit begins: where its data and model lie, and its first commit or the one it continues.

Nothing is written before the data have been surveyed. What a failed preparation has written is removed; one that
is killed or interrupted, or whose cluster is lost, leaves its evaluations behind, and the same job on the same rows
takes them up.
"""

import contextlib
import functools
import hashlib
import json
import shutil
import tempfile
import uuid
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.data.checks.manifest import from_table, to_table
from bcmdist.data.dataset import describe
from bcmdist.data.partition import from_key
from bcmdist.data.rows import changed_chunks
from bcmdist.data.schema import Schema, as_table, class_codes, frame_names, is_text
from bcmdist.data.writing import write_dataset
from bcmdist.errors import (
    BcmdistError,
    DataChanged,
    InvalidData,
    InvalidDtype,
    InvalidOption,
    ModelExists,
    NotFinite,
    SchedulerUnreachable,
    WorkerLost,
)
from bcmdist.experts.expert import zero_message
from bcmdist.learning.prepare import prepare_model, survey
from bcmdist.runtime.timing import Stages
from bcmdist.storage.commits import SCRATCH, open_store
from bcmdist.storage.disk import on_objects, open_storage
from bcmdist.storage.fields import damaged


class _Scratch:
    """A directory that lives as long as somebody refers to it."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="bcmdist-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def places(source, model):
    """What must be kept alive, the data's URL and the model's path, scratch ones where not given."""
    keep = []
    if isinstance(source, tuple):
        keep.append(_Scratch())
        path = Path(keep[-1].path, "data.zarr")
        X, y = source
        _refuse_other_rows(X, y)
        columns, X, y = frame_names(X), as_table(X), np.asarray(y)
        y, classes = class_codes(y, "y") if is_text(y) else (y, ())
        if X.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
            raise InvalidDtype(f"X, y: expected real numbers, got {X.dtype} and {y.dtype}; convert them to float64")
        write_dataset(path, {"X": X, "y": y}, schema=Schema(columns, classes))
        source = path
    if model is None:
        keep.append(_Scratch())
        model = Path(keep[-1].path, "model")
    return tuple(keep), source, model


def _refuse_other_rows(X, y):
    """Raise `InvalidData` where labels of rows say that y stands in another order than X."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "symmetric_difference") and hasattr(theirs, "symmetric_difference")):  # no data frames
        return
    if len(ours) == len(theirs) and not ours.equals(theirs) and not len(ours.symmetric_difference(theirs)):
        raise InvalidData("X, y: expected the same rows in the same order, their labels differ; give y.loc[X.index]")


def resumed(data, settings, model, runtime):
    """The unfinished (or finished) fit that a model directory holds, or None where it is empty.

    Raises
    ------
    ModelExists
        It holds something else.
    DataChanged
        The data are not those that were surveyed.
    """
    store = open_store(model)
    if store.head() == 0:
        if store.foreign():
            raise ModelExists(f"{model}: expected a new or empty directory, it holds other files; choose another one")
        return None
    commit = store.load()
    if commit.facts["fit"]["job"] != _job(data, settings):
        raise ModelExists(
            f"{model}: expected a new directory or the same fit to continue, it holds a fit of other data or "
            "settings; choose another --model, or remove it"
        )
    facts = commit.facts["fit"]
    surveyed, chunks = store.get_segment(facts["surveyed"]), recorded_chunks(store, facts)
    refuse_changed(survey(data, settings, runtime).entries.values(), surveyed, chunks)
    return commit


def _job(data, settings):
    """Hash of what a fit was asked to do."""
    asked = asdict(settings) | {"passes": settings.passes or "1"}  # under which fits of earlier versions are known
    job = {"data": describe(data.url, data.x, data.y), "url": data.url, "settings": asked}
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


def _job_on(job, surveyed):
    """Hash of a job with the rows that it found."""
    rows = sorted((entry.key, entry.digest) for entry in surveyed.entries.values())
    return hashlib.sha256(json.dumps([job, rows]).encode()).hexdigest()


def write_commit(store, number, model, committee, facts, *, segments=(), partitions=0, offsets=None):
    """Commit a model, its committee, and what else is known; the reference of the commit.

    Parameters
    ----------
    segments, partitions : hashes of the ledger's segments, and the number of its entries
    offsets : where to read on, by the name of a source

    Raises
    ------
    CommitConflict
    NotFinite
        Messages have ruined the committee.
    """
    arrays, model_facts = model.to_arrays()
    total = committee.total
    if not all(np.all(np.isfinite(part)) for part in (total.eta, total.precision, total.evidence)):
        raise NotFinite(
            f"{store.storage.url}: expected finite messages for commit {number}, got others; nothing was committed: "
            "check that inputs are in the range of the training data, else restore the model from a copy"
        )
    arrays |= {"eta": total.eta, "precision": total.precision}
    all_facts = {"model": model_facts, "fit": facts, "evidence": total.evidence, "rows": total.rows}
    all_facts["partitions"] = partitions
    digests = store.put_arrays(arrays, before=store.arrays_before(number))
    return store.commit(number, arrays=digests, facts=all_facts, segments=segments, offsets=offsets or {})


def prepared(data, settings, model, runtime):
    """The first commit: a model, and a committee that has heard nothing."""
    store = open_store(model)
    refuse_cells_on_objects(store.storage.url, settings.partition == "spatial")
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    with store.canary() as probe:
        runtime.check_same(probe, url=store.storage.url)
    stages = Stages()
    with stages("survey"):
        surveyed = survey(data, settings, runtime)
    with store.hold(0):
        _prepare(data, surveyed, settings, runtime, store, stages)
    return store.load(1)


def _prepare(data, surveyed, settings, runtime, store, stages):
    """Write the first commit, which is held; where that fails, nothing of it is left."""
    job = _job(data, settings)
    store.discard_uncommitted()  # so that blobs have the names by which evaluations that are left know them
    keep, scratch = _scratch(store.storage.url, _job_on(job, surveyed)[:12])
    # An object store does not take rows in one step: what a killed process has left has a name of its own.
    rows_url = f"{store.storage.url}/{SCRATCH}/{uuid.uuid4().hex}" if keep else str(scratch)
    try:
        made, found = prepare_model(data, surveyed, settings, runtime, store, stages, str(scratch), rows_url)
        facts = {"job": job, "data": data.url, **found}
        facts |= {"rows_per_expert": settings.rows_per_expert, "linearise": settings.linearise, "passes": []}
        facts["approximation"] = settings.approximation
        facts |= {"surveyed": store.put_segment(list(surveyed.entries.values())), "seconds": stages.seconds}
        if surveyed.chunks:
            facts |= {"chunks": store.put_arrays({"": to_table(surveyed.chunks)})[""]}
        write_commit(store, 1, made, Committee(zero_message(made.query, made.likelihood)), facts)
    except (SchedulerUnreachable, WorkerLost):
        raise
    except Exception:
        open_storage(f"{store.storage.url}/{SCRATCH}").remove_all()
        store.discard_uncommitted()
        store.storage.remove(SCRATCH)  # with the directory, unless it holds something else
        raise
    open_storage(f"{store.storage.url}/{SCRATCH}").remove_all()


def _scratch(url, job):
    """What must be kept alive, and a directory for what learning needs to resume: beside the model; for a model on an
    object store a temporary one, which a killed process does not find again."""
    keep = _Scratch() if on_objects(url) else None
    scratch = Path(keep.path if keep else url, SCRATCH, job)
    scratch.mkdir(parents=True, exist_ok=True)
    return keep, scratch


def refuse_cells_on_objects(url, cells):
    """Raise `InvalidOption` where a model on an object store is to have, or to use, cells."""
    if cells and on_objects(url):
        raise InvalidOption(
            f"{url}: expected a model directory on a disk that all workers share, for spatial partitions sort rows "
            "there, got an object store; use --partition chunks and --method committee, or --model DIR (DATA may stay "
            "where it is)"
        )


def refuse_changed(entries, surveyed, chunks=None):
    """Raise `DataChanged` where rows differ from what was surveyed under the same key.

    Parameters
    ----------
    chunks : what was read then, by key (`recorded_chunks`): the error names those that are others now
    """
    before = {entry.key: entry.digest for entry in surveyed}
    for entry in entries:
        if before.get(entry.key, entry.digest) != entry.digest:
            raise DataChanged(
                f"{entry.key}: expected the rows that were surveyed ({before[entry.key][:12]}), read others "
                f"({entry.digest[:12]}){_named(entry.key, chunks)}; do not change data that a model is being fitted "
                "to: fit a new --model"
            )


def recorded_chunks(store, facts):
    """Chunks, by key, that the survey of a fit read from a data set without a manifest."""
    if "chunks" not in facts:
        return {}
    try:
        return from_table(store.get_array(facts["chunks"]))
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(f"{store.storage.url}: blob {facts['chunks'][:12]}", "lines of chunks", str(error)) from error


def _named(key, chunks):
    """The chunks around a partition that have changed, as text."""
    with contextlib.suppress(BcmdistError):  # it is the first error that counts
        keys = changed_chunks(from_key(key, y=None), chunks) if chunks else []
        return f" from key {', '.join(keys[:3])}" if keys else ""
    return ""
