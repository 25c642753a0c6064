"""Ingest a source into a committee, with the loop or, where messages depend on their order, in turn."""

import functools

from bcmdist.committee.ingest.in_turn import ingest_in_turn
from bcmdist.committee.ingest.loop import Loop
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.ingest.watch import Finish, Unwatched, Watch
from bcmdist.committee.online_update import refuse_without_matrix
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import record_digest
from bcmdist.storage.entry import RUNNING


def unchanged(snapshot: Snapshot) -> Snapshot:
    """The snapshot itself: the default of `finish`."""
    return snapshot


def ingest(
    snapshot: Snapshot,
    source: Source,
    runtime: Runtime,
    options: IngestOptions | None = None,
    *,
    watch: Watch | None = None,
    finish: Finish = unchanged,
) -> tuple[Snapshot, IngestReport]:
    """Absorb the partitions that a source delivers, once each; return the last snapshot and a report.

    Parameters
    ----------
    watch : observes partitions that arrive after the fit; not used for sources without a name (rows in memory)
    finish : called once, when all partitions are absorbed; what it changes is in the commit of the last ones. If it
        fails or is interrupted, these are committed without; if the process dies, they are absorbed again

    Raises
    ------
    ChunkConflict
        An absorbed key is delivered with different rows.
    CommitConflict
        The directory now holds another model.
    DataChanged, InvalidData, InvalidOption, MemoryLimit, PoisonChunk, SchedulerLost, SourceUnreachable, ...
        Valid partitions have been committed; the committed offset stays before the partition that failed.
    """
    options = options or IngestOptions()
    snapshot.refuse_replaced()
    if snapshot.facts.linearisation.linearise == RUNNING:
        snapshot, report = ingest_in_turn(snapshot, source, runtime, options)
        return finish(snapshot).committed_or_newest(), report
    if options.update:
        refuse_without_matrix(snapshot.committee.total)
    runtime.check_same(functools.partial(record_digest, snapshot.url, snapshot.commit), url=snapshot.url)
    loop = Loop(snapshot, source, runtime, options, (source.name and watch) or Unwatched(), finish)
    loop.run()
    return loop.snapshot, loop.admission.report
