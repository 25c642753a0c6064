"""Ingest a source into all members of a mixture, each partition once.

The first member ingests as a single committee does, the others catch up with it, and one commit of the mixture names
all. With `watch` this repeats every few seconds.
"""

import time
from dataclasses import replace

from bcmdist.api import fit
from bcmdist.api.mixtures.catching_up import EVERY_COMMIT, following
from bcmdist.api.mixtures.changes import prune, revised
from bcmdist.committee.ingest.options import IngestOptions, IngestReport
from bcmdist.committee.mixture_commits import Contents
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.sources.open import Source
from bcmdist.errors import BcmdistError, InvalidOption, SchedulerLost
from bcmdist.runtime.interface import Runtime

# Seconds of waiting ingestion after which the other members absorb what the first has absorbed.
ROUND_SECONDS = 5.0


def ingest(
    url: str, source: Source, options: IngestOptions | None, runtime: Runtime, *, operation: str = "ingest"
) -> tuple[Contents, IngestReport]:
    """Absorb the partitions of a source into all members, each exactly once, and commit.

    With `options.watch` the mixture is committed every few seconds.

    Raises
    ------
    InvalidOption
        The options ask for refits.
    """
    options, total = options or IngestOptions(), IngestReport()
    if options.refit == "auto":
        raise InvalidOption(f"--refit: expected a single committee, got the mixture {url}; leave it out")
    finished = False
    while not finished:
        one = _Round(source, options, runtime, total.partitions)
        contents = revised(url, one.member, runtime, operation, sample_weights=options.sample_weights)
        _add(total, one.report)
        if one.failure is not None:
            raise one.failure
        finished = one.finished(total.partitions)
    prune(url, options.keep)
    return contents, total


class _Round:
    """One ingestion by the first member, and then by the others: from the number of a member to its change."""

    def __init__(self, source: Source, options: IngestOptions, runtime: Runtime, done: int) -> None:
        self.source, self.options, self.runtime, self.done = source, options, runtime, done
        self.report = IngestReport()
        self.failure: BcmdistError | None = None
        """error of the first member, if it has committed other partitions"""
        self._stopped = False

    def member(self, number: int, snapshot: Snapshot) -> Snapshot:
        """Return a member after it has absorbed the partitions of this round."""
        if number == 0:
            self._first = self._absorbed(snapshot)
            return self._first
        return following(snapshot, self._first, self.options, self.runtime)

    def _absorbed(self, snapshot: Snapshot) -> Snapshot:
        options, self._begun, self._before = self.options, time.monotonic(), snapshot
        most = None if options.max_partitions is None else options.max_partitions - self.done - self.report.partitions
        if most == 0:
            return snapshot
        own = replace(options, stop=self._stop, max_partitions=most, sample_weights=None, keep=EVERY_COMMIT)
        try:
            after, report = fit.ingest_source(snapshot, self.source, own, self.runtime)
        except SchedulerLost:
            raise
        except BcmdistError as error:
            after = snapshot.newest()
            if after.commit == snapshot.commit:
                raise
            self.failure = error
        else:
            _add(self.report, report)
        return after

    def _stop(self) -> bool:
        """Whether to end the round: with `watch`, after some seconds if something was committed."""
        self._stopped = self._stopped or self.options.stop()
        late = self.options.watch and time.monotonic() - self._begun >= ROUND_SECONDS
        return self._stopped or (late and self._before.store.head() > self._before.commit)

    def finished(self, partitions: int) -> bool:
        """Whether no round follows, after `partitions` in all."""
        most = self.options.max_partitions
        return not self.options.watch or self._stopped or (most is not None and partitions >= most)


def _add(total: IngestReport, report: IngestReport) -> None:
    """Add the counts of a report to those of earlier rounds."""
    for name in ("partitions", "rows", "duplicates", "same_rows", "expired", "retries"):
        setattr(total, name, getattr(total, name) + getattr(report, name))
    total.skipped, total.waiting = [*total.skipped, *report.skipped], report.waiting
