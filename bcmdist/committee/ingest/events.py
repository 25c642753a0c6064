"""Events of an ingestion: counts since the event before, for `IngestOptions.observe`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from bcmdist.committee.facts import Lag
from bcmdist.committee.ingest.options import IngestEvent, IngestReport

COUNTS = ("partitions", "rows", "duplicates", "same_rows", "expired", "retries", "skipped")


class Events:
    """Makes the events of one ingestion, in order."""

    def __init__(self, observe: Callable[[IngestEvent], None], source: str) -> None:
        self._observe, self._source = observe, source
        self._counts, self._failed = _counts(IngestReport()), Counter[str]()

    def happened(
        self,
        report: IngestReport,
        *,
        commit: int,
        threads: int,
        failed: Mapping[str, int] = MappingProxyType({}),
        seconds: float | None = None,
        lag: Lag | None = None,
        keys: Iterable[str] = (),
    ) -> None:
        """Call the observer with what `report` and `failed`, which only grow, have more than at the call before."""
        counts, all_failed = _counts(report), Counter(failed)
        grown = {name: counts[name] - self._counts[name] for name in COUNTS}
        failures, self._counts, self._failed = dict(all_failed - self._failed), counts, all_failed
        self._observe(IngestEvent(self._source, commit, grown, failures, seconds, lag, threads, tuple(keys)))


def _counts(report: IngestReport) -> dict[str, int]:
    return {name: getattr(report, name) for name in COUNTS[:-1]} | {"skipped": len(report.skipped)}
