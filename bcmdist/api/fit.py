"""Fitting and updating a committee: the steps of `fit`, and `absorb`, `forget` and `refine` with recalibration."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import Any

from bcmdist.api.comparison.left_out import with_accuracy
from bcmdist.api.places import placed, places
from bcmdist.api.refitting import refit, refuse_fixed
from bcmdist.api.requests import RefitOptions
from bcmdist.committee import passes, revision
from bcmdist.committee.cells import absorbed_in_cells
from bcmdist.committee.ingest.growing import share_of_new_places
from bcmdist.committee.ingest.ingestion import Finish, ingest, unchanged
from bcmdist.committee.ingest.options import IngestOptions, IngestReport, SameRows, UpdateForm
from bcmdist.committee.ingest.source import source_of
from bcmdist.committee.measurements import OnlineUpdate
from bcmdist.committee.snapshot import Snapshot, from_commit
from bcmdist.data.dataset import Dataset, open_data
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition, partitions, refuse_overlap
from bcmdist.data.schema import UNNAMED
from bcmdist.data.slices import SLICED
from bcmdist.data.sources.delivery import Listed
from bcmdist.data.sources.open import Source
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.learning import first_commit
from bcmdist.learning.experts import method_of
from bcmdist.learning.like import model_like, settings_like
from bcmdist.learning.settings import Settings
from bcmdist.model.input_errors import refuse_unknown_errors
from bcmdist.prediction.errors.arrival_watch import ArrivalWatch
from bcmdist.prediction.errors.class_probabilities import calibrated
from bcmdist.prediction.local import arrange
from bcmdist.prediction.measuring.measurement import measured
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import Reference, open_store

# More partitions than any call absorbs, so that there is one commit.
IN_ONE_COMMIT = 10**9


def fit(
    source: Any, settings: Settings, model: Location | None, runtime: Runtime, *, cells: Reference | None = None
) -> Snapshot:
    """Fit a committee: prepare, sort rows into cells (spatial partitions), absorb, refine, build local experts
    (spatial partitions), and measure the distribution of prediction errors.

    `cells`: a commit whose cells and rows in their order to use, of the same data
    """
    snapshot, data = prepare(source, settings, model, runtime)
    with snapshot.held():
        if cells is not None:
            snapshot = arrange.arranged_as(snapshot, cells)
        several, options = _makes_several(settings, snapshot), _growth(settings, snapshot)
        return complete(snapshot, data, runtime, several=several, compare=True, options=options)


def _growth(settings: Settings, snapshot: Snapshot) -> IngestOptions:
    """How the query points of a fit grow, by default only by rows from new places."""
    if not settings.grow:
        return IngestOptions()
    share = settings.grow_share or share_of_new_places(snapshot)
    return IngestOptions(grow=True, grow_share=share, query_most=settings.query_most)


def complete(
    snapshot: Snapshot,
    data: Dataset,
    runtime: Runtime,
    *,
    several: bool,
    compare: bool = False,
    options: IngestOptions | None = None,
) -> Snapshot:
    """Continue a fit after `prepare`: absorb all rows, and measure the distribution of prediction errors.

    `several`: whether to make further passes until the posterior converges; `compare`: whether to compare predictions
    of rows left out with baselines; `options`: how rows are absorbed. The caller holds the commit.
    """
    compared = functools.partial(with_accuracy, runtime=runtime) if compare else unchanged
    spatial = snapshot.model.cells is not None
    if spatial:
        snapshot = arrange.arrange(snapshot, data, runtime)
        parts = arrange.cell_partitions(snapshot)
    else:
        parts = partitions(data, snapshot.facts.survey.rows_per_expert)
    if not (spatial or several):
        finish = functools.partial(_finished, runtime=runtime, compared=compared)
        return _absorbed(snapshot, parts, runtime, finish, options)
    snapshot = absorb_without_errors(snapshot, parts, runtime, options)
    if several:
        snapshot = _refined(snapshot, runtime)
    if spatial:
        snapshot = arrange.surround(snapshot, runtime)
    with snapshot.committed_on_error():
        found = compared(measured(snapshot, runtime))
    return found.committed()


def prepare(source: Any, settings: Settings, model: Location | None, runtime: Runtime) -> tuple[Snapshot, Dataset]:
    """Return the unfinished fit in the model directory, else a new committee without data; and the data set."""
    settings, like = settings_like(settings), model_like(settings)
    method, how = method_of(settings), {"schema": like.schema} if like else {}
    keep, source, model = places(source, model, like=like.schema if like else UNNAMED)
    data = open_data(source, x=settings.x, y=settings.y, uncertain=method.capabilities.input_errors, **how)
    if like and data.inputs != like.inputs:
        raise InvalidData(
            f"{data.url}: expected {like.inputs} columns in {data.x}, as in {settings.like}, got {data.inputs}; give "
            "the same columns in the same order, or leave out --like"
        )
    if method.needs_variances(settings):
        refuse_unknown_errors(data)
    asked = (data, settings, model, runtime)
    commit = first_commit.resumed(*asked) or first_commit.prepared(*asked)
    return from_commit(open_store(model), commit).kept(*keep), data


def absorb(
    snapshot: Snapshot, parts: Iterable[Partition], runtime: Runtime, *, same_rows: SameRows = "warn"
) -> Snapshot:
    """Absorb the partitions that are not in the ledger yet, update calibration and error distributions, and commit."""
    finish, options = functools.partial(_finished, runtime=runtime), IngestOptions(same_rows=same_rows)
    return _absorbed(snapshot, parts, runtime, finish, options)


def absorb_without_errors(
    snapshot: Snapshot, parts: Iterable[Partition], runtime: Runtime, options: IngestOptions | None = None
) -> Snapshot:
    """Absorb new partitions, recalibrate class probabilities, and commit; the error distributions stay."""
    return _absorbed(snapshot, parts, runtime, functools.partial(calibrated, runtime=runtime), options)


def _absorbed(
    snapshot: Snapshot,
    parts: Iterable[Partition],
    runtime: Runtime,
    finish: Callable[..., Snapshot],
    options: IngestOptions | None,
) -> Snapshot:
    """Absorb new partitions, call `finish` with the number of rows `since` when it was last called, and commit."""
    in_cells, ledger = absorbed_in_cells(snapshot), snapshot.ledger
    parts = [p for p in dict.fromkeys(snapshot.named([*parts])) if not (p.key in in_cells or ledger.holds(p.key))]
    snapshot.refuse_unlike(parts)
    refuse_overlap(parts, {entry.key for entry in ledger} | in_cells)
    if not parts:
        return finish(snapshot, since=0).committed_or_newest()
    finish = functools.partial(finish, since=snapshot.committee.total.rows)
    with snapshot.going_on() as snapshot:
        return ingest(snapshot, Listed(tuple(parts)), runtime, options, finish=finish)[0]


def _finished(
    snapshot: Snapshot, *, runtime: Runtime, since: int, read: bool = True, compared: Finish = unchanged
) -> Snapshot:
    """Calibrate class probabilities, measure errors and compare them; what is found remains to be committed."""
    return compared(measured(calibrated(snapshot, runtime, since=since), runtime, read=read))


def ingest_source(
    snapshot: Snapshot, source: Source, options: IngestOptions | None, runtime: Runtime
) -> tuple[Snapshot, IngestReport]:
    """Absorb the partitions of a source with periodic commits, and record how well each was predicted beforehand."""
    if options is not None and options.sample_weights is not None:
        raise InvalidOption(
            f"--sample-weights: expected a mixture over hyper-parameters, got one committee, {snapshot.url}; leave "
            "it out"
        )
    with snapshot.going_on() as snapshot:
        finish = functools.partial(_finished, runtime=runtime, since=snapshot.committee.total.rows, read=False)
        keep = (options or IngestOptions()).keep
        if options is None or options.refit == "never":
            return ingest(snapshot, source, runtime, options, watch=ArrivalWatch(snapshot, keep), finish=finish)
        refuse_fixed(snapshot)
        watch = ArrivalWatch(snapshot, keep, lambda newest: refit(newest, RefitOptions(), runtime))
        after, report = ingest(snapshot, source, runtime, options, watch=watch, finish=finish)
        return after.newest(), report


def partial_fit(snapshot: Snapshot, source: Any, runtime: Runtime, options: IngestOptions | None = None) -> Snapshot:
    """Absorb the rows at a URL or in memory; rows in memory are kept on disk as long as the snapshot lives."""
    keep, url = placed(source, like=snapshot.model.schema)
    with contextlib.closing(source_of(snapshot, url)) as opened:
        absorbed, _ = ingest_source(snapshot, opened, options, runtime)
    return absorbed.kept(*keep)


def update(snapshot: Snapshot, source: Any, form: UpdateForm, runtime: Runtime) -> tuple[Snapshot, OnlineUpdate]:
    """Absorb the rows at a URL or in memory in one commit; return also the record of this update of the belief.

    Raises
    ------
    InvalidData
        All rows were absorbed before.
    """
    after = partial_fit(snapshot, source, runtime, IngestOptions(update=form, commit_every=IN_ONE_COMMIT))
    made = after.facts.ingestion.update
    if made is None or made.commit <= snapshot.commit:
        raise InvalidData(f"{snapshot.url}: expected rows that were not absorbed yet, all were; give new rows")
    return after, made


def forget(snapshot: Snapshot, keys: Iterable[str], runtime: Runtime) -> Snapshot:
    """Withdraw the messages of partitions, recalibrate, and commit."""
    with snapshot.going_on() as snapshot:
        before = snapshot.committee.total.rows
        return calibrated(revision.forget(snapshot, keys, runtime), runtime, since=before).committed_or_newest()


def refine(
    snapshot: Snapshot, runtime: Runtime, *, most: int | None = None, tolerance: float = passes.TOLERANCE
) -> Snapshot:
    """Make further passes over the data (`passes.refine`), and recalibrate class probabilities."""
    return _refined(snapshot, runtime, most=most, tolerance=tolerance).committed_or_newest()


def _refined(snapshot: Snapshot, runtime: Runtime, **how: Any) -> Snapshot:
    found = passes.refine(snapshot, runtime, **how)
    return calibrated(found, runtime, since=0 if found.commit != snapshot.commit else found.committee.total.rows)


def _makes_several(settings: Settings, snapshot: Snapshot) -> bool:
    """Whether a fit makes further passes: as in `settings.passes`; by default only where the partitions are slices of
    sorted targets and each expert was linearised on its own."""
    if settings.passes is not None:
        return settings.passes == "auto"
    sliced = snapshot.model.cells is None and (snapshot.facts.survey.between_partitions or 0.0) >= SLICED
    return sliced and settings.linearise == "own"
