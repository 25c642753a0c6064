"""Begin a fit: check model directory and data, and write the first commit or load the commit to continue.

Nothing is written before the data have been surveyed. A failed preparation removes what it has written. Of two
preparations at the same time the slower one ends in a `CommitConflict`, and the files that the other reads stay. If
a preparation is killed or interrupted, or its cluster is lost, its log of evaluations stays, and the same job on the
same rows resumes from it.
"""

import functools
import hashlib
import json
import uuid
from pathlib import Path

from bcmdist.committee.cells import refuse_cells_on_objects
from bcmdist.committee.commit_record import write_commit
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts
from bcmdist.committee.record import json_values
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.checks.manifest import to_table
from bcmdist.data.dataset import describe
from bcmdist.data.groups import absolute_url
from bcmdist.errors import (
    ModelExists,
    SchedulerUnreachable,
    WorkerLost,
)
from bcmdist.experts.message import zero_message
from bcmdist.learning.experts import FIRST, method_of
from bcmdist.learning.method import left_out_errors
from bcmdist.learning.partition_choice import choose_partition, with_each_partition
from bcmdist.learning.prediction_inputs import check_prediction_inputs
from bcmdist.learning.prepare import FitResources, prepare_model, survey
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import SCRATCH, Commit, open_store
from bcmdist.storage.fields import read_back
from bcmdist.storage.locate import open_storage
from bcmdist.storage.temporary import Scratch
from bcmdist.storage.urls import on_objects

# Most inputs whose ranges are recorded: forms, which show them, have few, and each commit repeats them.
MOST_RANGES = 200


def same_fit(data, settings, model) -> Commit | None:
    """Newest commit in a model directory of the same fit, of any rows; None if the directory is empty.

    Raises
    ------
    ModelExists
        The directory holds other files or another fit.
    """
    store = open_store(model)
    if store.head() == 0:
        if store.foreign():
            raise ModelExists(f"{model}: expected a new or empty directory, got one with other files; choose another")
        return None
    commit = store.load()
    if commit.facts["fit"]["job"] not in (_job(data, one) for one in with_each_partition(settings)):
        raise ModelExists(
            f"{model}: expected a new directory or the same fit to continue, got a fit of other data or "
            "settings; choose another --model, or remove it"
        )
    return commit


def resumed(data, settings, model, runtime) -> Commit | None:
    """Commit of the same fit, finished or not, in a model directory; None if the directory is empty.

    Raises
    ------
    ModelExists
        As `same_fit`.
    DataChanged
        The data differ from the surveyed data.
    """
    store, commit = open_store(model), same_fit(data, settings, model)
    if commit is None:
        return None
    facts = Facts.from_json(commit.facts["fit"])
    surveyed, chunks = store.get_segment(facts.survey.surveyed), recorded_chunks(store, facts)
    refuse_changed(survey(data, settings, runtime).entries.values(), surveyed, chunks)
    return commit


def _job(data, settings):
    """Hash of data and settings of a fit; equal to that of earlier versions if new options have their defaults."""
    asked = settings.flat() | {"passes": settings.passes or "1"}  # the value that earlier versions hashed
    usual = method_of(settings).defaults
    asked |= {"objective": settings.objective or usual.objective}
    asked |= {"query_method": settings.query_method or usual.query_method}
    if settings.expert == FIRST:  # the only expert of the first version
        del asked["expert"]
    for name in ("query_from", "like"):
        if asked[name] is None:
            del asked[name]
        else:
            asked[name] = absolute_url(asked[name])
    # auto replaces the only value of earlier versions; absorbing does not depend on it
    for name in ("noise", "warp", "target_transform"):
        if asked[name] == "auto":
            del asked[name]
    if not asked["grow"]:
        del asked["grow"]
    for name in ("coordinates", "output", "grow_share", "query_most", "seconds"):
        if asked[name] is None:
            del asked[name]
    if settings.precision == FIRST_PRECISION:
        del asked["precision"]
    job = {"data": describe(data.url, data.x, data.y), "url": data.url, "settings": asked}
    return hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()


def _job_on(job, surveyed):
    """Hash of a job and the rows that its survey found."""
    rows = sorted((entry.key, entry.digest) for entry in surveyed.entries.values())
    return hashlib.sha256(json.dumps([job, rows]).encode()).hexdigest()


def prepared(data, settings, model, runtime) -> Commit:
    """Prepare a fit and write its first commit: a model, and a committee that has absorbed no rows."""
    store = open_store(model)
    asked, (settings, _) = settings, choose_partition(settings, data, model, runtime)
    refuse_cells_on_objects(store.storage.url, settings.partition == "spatial")
    runtime.check_same(functools.partial(describe, data.url, data.x, data.y), url=data.url)
    with store.canary() as probe:
        runtime.check_same(probe, url=store.storage.url)
    check_prediction_inputs(settings, data, runtime)
    stages = StageTimer()
    with stages("survey"):
        surveyed = survey(data, settings, runtime)
    settings, of_partition = choose_partition(asked, data, model, runtime, labels=surveyed.labels)
    with store.hold(0):
        _prepare(data, surveyed, settings, runtime, store, stages, of_partition)
    return store.load(1)


def _prepare(data, surveyed, settings, runtime, store, stages, decisions):
    """Write the first commit, while the caller holds commit 0; on failure, unless the cluster is lost, clean up."""
    job = _job(data, settings)
    store.discard_uncommitted()  # so that blobs get the same names as in the evaluations of an interrupted run
    keep, scratch = _scratch(store.storage.url, _job_on(job, surveyed)[:12])
    # Rows are not written to an object store in one step: remains of a killed process must have another name.
    rows_url = f"{store.storage.url}/{SCRATCH}/{uuid.uuid4().hex}" if keep else str(scratch)
    try:
        made, found = prepare_model(
            data, surveyed, settings, runtime, store, FitResources(stages, str(scratch), rows_url)
        )
        found["decisions"] = decisions + found["decisions"]
        flat = {
            "job": job,
            "data": data.url,
            "surveyed": store.put_segment(list(surveyed.entries.values())),
            "chunks": store.put_arrays({"": to_table(surveyed.chunks)})[""] if surveyed.chunks else None,
            "ranges": surveyed.x.ranges if data.inputs <= MOST_RANGES else None,
            "approximation": settings.approximation,
            "linearise": settings.linearise,
            "rows_per_expert": settings.rows_per_expert,
            "seconds": stages.seconds,
            "expert": settings.expert,
            "method": method_of(settings).defaults.predictor,
            "noise": settings.noise if measures_errors(settings) else None,
            **found,
        }
        with read_back(f"{store.storage.url}: commit 1"):
            facts = Facts.from_json(json_values(flat))
        nothing = Committee(zero_message(made.shared, made.likelihood), made.shared.belief)
        write_commit(store, 1, made, nothing, facts)
    except (SchedulerUnreachable, WorkerLost):
        raise
    except Exception as error:
        open_storage(rows_url).remove_all()
        if isinstance(error, OSError) and store.numbers():
            # Another fit has committed and removed the files that this one read; it may use other scratch by now.
            store.storage.remove(f"{SCRATCH}/{scratch.name}")
            raise store.taken(1) from error
        if store.only_lease():
            open_storage(f"{store.storage.url}/{SCRATCH}").remove_all()
            store.discard_uncommitted()
        store.storage.remove(f"{SCRATCH}/{scratch.name}")  # and the directory, if it is empty
        raise
    open_storage(f"{store.storage.url}/{SCRATCH}").remove_all()


def measures_errors(settings) -> bool:
    """Whether leave-one-out residuals measure prediction errors."""
    return left_out_errors(method_of(settings), settings)


def _scratch(url, job):
    """Return an object that must be kept alive, and the directory for the files from which learning resumes.

    The directory is inside the model; for a model on an object store it is temporary, and a restart does not find it.
    """
    keep = Scratch() if on_objects(url) else None
    scratch = Path(keep.path if keep else url, SCRATCH, job)
    scratch.mkdir(parents=True, exist_ok=True)
    return keep, scratch
