"""Withholding: score absorbed partitions as if they had not been absorbed, as a reference for arrivals.

This is done once per model, during its first ingestion and along with the new partitions. Partitions whose rows can no
longer be read are left out. The result is stored in the facts of the next commit
(`bcmdist.prediction.scoring.excess_loss.Expected`).
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from bcmdist.committee.absorbed import partitions_of
from bcmdist.committee.facts import Facts
from bcmdist.committee.fading import weights
from bcmdist.committee.measurements import ExpectedLoss
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.errors import BcmdistError
from bcmdist.prediction.errors.arrivals import ArrivalRecords, Withheld
from bcmdist.prediction.scoring import excess_loss
from bcmdist.runtime.interface import Outcome
from bcmdist.storage.commits import BlobReference


class Withholding:
    """The expected excess loss of arrivals (`expected`), or the tasks and partial results that lead to it."""

    def __init__(self, facts: Facts):
        self.expected = excess_loss.from_facts(facts.errors.expected)
        self.asked = self.expected is not None
        self._waiting = set[str]()
        """keys of the partitions whose scores have not arrived"""
        self._samples: list[Any] = []

    def work(self, snapshot: Snapshot) -> Iterator[tuple[Withheld, list[Partition]]]:
        """Tasks for the partitions to withhold; none until the ledger has such partitions, and none on later calls."""
        entries = [] if self.asked else excess_loss.withheld(snapshot.ledger)
        counts = weights(snapshot.facts.fading, entries)
        for entry in entries:
            self.asked = True
            at = BlobReference(snapshot.url, entry.at) if entry.at else None
            with contextlib.suppress(BcmdistError):  # the data are gone
                (part,) = partitions_of(snapshot, [entry], counts)
                self._waiting.add(part.key)
                yield Withheld(snapshot.expert(at), snapshot.reference), [part]

    def is_of(self, outcome: Outcome) -> bool:
        """Whether an outcome belongs to a task of `work`, including a failed one."""
        failed = outcome.error is not None and outcome.parts[0].key in self._waiting
        return failed or isinstance(outcome.result, ArrivalRecords)

    def take(self, outcome: Outcome, digests: Mapping[str, str]) -> None:
        """Handle an outcome; scores count only if the rows are still the absorbed ones by `digests` (by key)."""
        self._waiting -= {part.key for part in outcome.parts}
        records = outcome.result.by_key if outcome.result else {}
        self._samples += [samples for key, (digest, samples) in records.items() if digests.get(key) == digest]
        if not self._waiting and self._samples:
            self.expected = excess_loss.expected(self._samples)

    def facts(self, current) -> dict[str, Any]:
        """Facts to change in the commit that follows one with the facts `current`."""
        return (
            {}
            if self.expected is None or current.errors.expected
            else {"expected": ExpectedLoss(**asdict(self.expected))}
        )
