"""Observer of an ingestion: predict partitions before they are absorbed, and warn of drift."""

from collections.abc import Callable
from dataclasses import replace

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import BcmdistError
from bcmdist.prediction.errors.arrivals import Arrival
from bcmdist.prediction.errors.drift import MOST_ARRIVALS, drift_in
from bcmdist.prediction.errors.withholding import Withholding
from bcmdist.prediction.scoring import excess_loss
from bcmdist.storage.entry import Entry

# Share of rows absorbed since up to which a commit still predicts arrivals: workers need not load each new one.
FRESH_SHARE = 0.1


class ArrivalWatch:
    """A `bcmdist.committee.ingest.watch.Watch` for one ingestion into the model of a snapshot.

    keep : number of commits that are not pruned
    refit : commits the model with new hyper-parameters; called where what arrives is worse than expected. Rows wait in
        their source meanwhile; what arrives later is compared with the new model
    """

    def __init__(self, snapshot: Snapshot, keep: int = 1, refit: Callable[[Snapshot], Snapshot] | None = None):
        self._withholding, self._warned, self._refit = Withholding(snapshot.facts), False, refit
        self._predicts, self._keep = snapshot, keep
        self.further_tasks, self.is_of = self._withholding.work, self._withholding.is_of
        self.take, self.facts = self._withholding.take, self._withholding.facts

    def message_task(self, expert, snapshot) -> Arrival:
        """The task that scores new partitions before it absorbs them."""
        if not self._is_fresh(snapshot):
            self._predicts = snapshot
        return Arrival(expert, self._predicts.reference)

    def _is_fresh(self, snapshot):
        """Whether the commit that predicts is nearly as good as a new one of the same model, and is there for long."""
        last = self._predicts
        same = last.facts.learning.refits == snapshot.facts.learning.refits
        same = same and len(last.model.earlier) == len(snapshot.model.earlier) and not snapshot.facts.fading.fades
        few = snapshot.committee.total.rows <= (1.0 + FRESH_SHARE) * last.committee.total.rows
        return same and few and snapshot.commit - last.commit <= self._keep // 2

    def recorded(self, entries) -> dict[str, Entry]:
        """New entries; without their excess loss while there is nothing to compare it with."""
        if self._withholding.asked:
            return entries
        return {key: replace(entry, excess_loss=()) for key, entry in entries.items()}

    def warning(self, snapshot, before) -> str | None:
        """Drift warning, returned once: if arrivals are worse than expected, or were so during this ingestion.

        With `refit` the model is refitted before, and later drift is warned of again.

        `before` : the ledger at the start of the ingestion
        """
        expected = excess_loss.from_facts(snapshot.facts.errors.expected)
        found = None if self._warned else drift_in(snapshot.ledger, expected)
        if not found or not (found["worse"] or _is_new(found["last_since"], snapshot, before)):
            return None
        self._warned = True
        found_worse = f"{snapshot.url}: what arrives is {found['verdict']}"
        if self._refit is not None:
            return f"{found_worse}; {self._refitted(snapshot)}"
        remedy = "let old rows fade (--half-life), add query points (--grow), or `bcmdist refit`"
        return f"{found_worse}; look at `bcmdist info --picture`; {remedy}"

    def _refitted(self, snapshot) -> str:
        """Refit the model; return what was done, in words. After a failure there is no further attempt."""
        assert self._refit is not None, "the caller asks"
        try:
            after = self._refit(snapshot.newest())
        except BcmdistError as error:
            return f"a refit failed: {error}"
        self._warned = False
        return f"refitted in commit {after.commit}"


def _is_new(number, snapshot, before):
    """Whether the arrival with this number (from 1; None: no arrival) was absorbed by this ingestion."""
    ledger = snapshot.ledger
    arrived = ledger.latest_arrivals(MOST_ARRIVALS)
    return number is not None and before.find(arrived[number - 1 - ledger.arrived].key) is None
