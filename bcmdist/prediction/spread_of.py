"""The spread of errors at a commit, of the predictions of a method: what its ledger says."""

from functools import lru_cache

from bcmdist.committee.facts import Facts
from bcmdist.committee.fading import weights
from bcmdist.committee.loading import load_facts
from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.scale import Process
from bcmdist.prediction.spread import Residuals, Spread, noted, spread_of
from bcmdist.storage.commits import Reference, open_store
from bcmdist.storage.loading import load_record


@lru_cache(maxsize=4)
def load_spread(reference: Reference, method: str) -> Spread:
    """That of a commit, on whichever worker."""
    ledger = open_store(reference.url).ledger(load_record(reference))
    return _spread(load_facts(reference), ledger, method)


def spread_of_snapshot(snapshot: Snapshot, method: str) -> Spread:
    """That of a snapshot in memory, worked out once, until there is another."""
    commit, known = snapshot.read.get(("spread", method), (None, None))
    if commit != snapshot.commit:
        known = _spread(snapshot.facts, snapshot.ledger, method)
        snapshot.read[("spread", method)] = snapshot.commit, known
    return known


def residuals_known(facts: Facts, ledger, method: str) -> Residuals:
    """Residuals in a ledger, each of which counts as its partition does by now."""
    return noted(ledger, weights(facts.fading, ledger), method)


def _spread(facts, ledger, method):
    process = (facts.spread or {}).get("process") if method == facts.method else None
    return spread_of(residuals_known(facts, ledger, method), process and Process.from_json(process))
