"""The spread of errors, measured at the end of a fit by rows that are left out, and noted in the ledger.

Once for a model, and again when it has absorbed twice as many rows: meanwhile arrivals note their own residuals.
"""

import functools
from dataclasses import replace

import numpy as np

from bcmdist.committee.passes import readable_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import CommitConflict
from bcmdist.model.kernels import metric
from bcmdist.prediction.errors.error_distribution import FADED, LEAST, gain_of, residuals_of
from bcmdist.prediction.errors.heteroscedasticity import settle_process
from bcmdist.prediction.left_out_rows import sites_repeat
from bcmdist.prediction.measuring.left_out_errors import LeaveOut
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.ledger import ResidualRecord, named_range

# Rows that are left out, about, of so many partitions at most.
ROWS, PARTITIONS = 4000, 16
# By local prediction, at the cost of a local expert for each cell: a share of all rows, within these limits, from cells
# of as many partitions; some of these tell of the errors of the committee, too.
LOCAL_SHARE, LOCAL_ROWS, COMMITTEE_EVERY = 1 / 30, (1600, 6000), 3
# Numbers of a ledger that tell where they were, at most.
NUMBERS = 2**17
# Residuals of arrivals that are enough not to leave out rows again.
ENOUGH = 1000
AGAIN = 2.0
SEED = 0


def measured(snapshot: Snapshot, runtime, *, read=True) -> Snapshot:
    """The commit that knows how errors are spread; of a model of classes the same one.

    `read`: whether rows that were absorbed may be read for it; else what arrivals have told is all there is.
    """
    facts, rows = snapshot.facts, snapshot.committee.total.rows
    if not _measurable(snapshot) or (facts.spread and rows < AGAIN * facts.spread["rows"]):
        return snapshot
    stages, ledger = StageTimer(), snapshot.ledger
    with stages("errors"):
        if residuals_of(facts, ledger, facts.method).count < ENOUGH:
            if not read:
                return snapshot
            ledger = _left_out(snapshot, runtime)
            if ledger is snapshot.ledger:
                return snapshot
        spread = _error_distribution(snapshot, ledger)
    return _with(snapshot, ledger, spread, stages)


def measured_anew(snapshot: Snapshot, runtime) -> Snapshot:
    """As `measured`, of a committee whose residuals are those of others: rows are left out again. Residuals stay where
    none of its rows can be read."""
    if not _measurable(snapshot):
        return snapshot
    stages = StageTimer()
    with stages("errors"):
        readable = {part.key for part in readable_partitions(snapshot)}
        blank = [replace(e, residuals=None) if e.key in readable and not e.arrival else e for e in snapshot.ledger]
        ledger = _left_out(replace(snapshot, ledger=tuple(blank)), runtime)
        spread = _error_distribution(snapshot, ledger)
    return _with(snapshot, ledger, spread, stages)


def _measurable(snapshot):
    rows, likelihood = snapshot.committee.total.rows, snapshot.model.likelihood
    return snapshot.facts.noise is not None and likelihood.measured and rows >= LEAST


def _with(snapshot, ledger, spread, stages):
    """The commit with a ledger, and with what its residuals say."""
    changed = ledger is not snapshot.ledger
    try:
        entries = ledger if changed else []
        return snapshot.successor(snapshot.committee, entries, rewrite=changed, stages=stages, spread=spread)
    except CommitConflict:  # who has absorbed more measures too
        return snapshot.newest()


def _left_out(snapshot, runtime):
    """The ledger with the residuals of rows that are left out, of what a fit has absorbed: what arrived may be gone."""
    facts, local = snapshot.facts, snapshot.facts.method == "local"
    fit = {entry.key for entry in snapshot.ledger if not entry.arrival}
    absorbed = [part for part in readable_partitions(snapshot) if part.key in fit and part.weight > FADED]
    parts = [part for part in absorbed if not local or named_range(part.key)[0] == facts.cells.array]
    if not parts:
        return snapshot.ledger
    rows = sum(part.rows for part in parts)
    wanted = np.clip(LOCAL_SHARE * rows, *LOCAL_ROWS) if local else ROWS
    wanted = max(2 * LEAST, min(wanted, NUMBERS // snapshot.model.inputs))
    least = int(np.ceil(2 * LEAST * len(parts) / rows))
    most = max(1, round(wanted / (facts.cells.core or 1))) if local else max(PARTITIONS, least)
    chosen = [parts[k] for k in np.sort(np.random.default_rng(SEED).permutation(len(parts))[:most])]
    at = BlobReference(snapshot.url, facts.linearised_at) if facts.linearised_at else None
    task = functools.partial(LeaveOut, snapshot.reference, int(np.ceil(wanted / len(chosen))), local, at=at)
    every, found = (
        COMMITTEE_EVERY if local and wanted >= 2 * LEAST * COMMITTEE_EVERY else 1,
        dict[str, ResidualRecord](),
    )
    if snapshot.model.likelihood.exact or sites_repeat(facts):
        found = runtime.sum(task(local=False), chosen[::every], label="errors").by_key
    if local:  # places are of these
        near = runtime.sum(task(local=True), chosen, label="errors").by_key
        found = {
            key: replace(record, committee=found[key].committee) if found.get(key) else record
            for key, record in near.items()
        }
    if not found:
        return snapshot.ledger
    return tuple(
        replace(entry, residuals=found[entry.key] or None) if entry.key in found else entry for entry in snapshot.ledger
    )


def _error_distribution(snapshot, ledger) -> dict:
    """What the residuals of a ledger say of the scale of errors, as the fact `spread`."""
    residuals = residuals_of(snapshot.facts, ledger, snapshot.facts.method)
    known = {"rows": snapshot.committee.total.rows, "gain": None, "gain_error": None, "process": None}
    if snapshot.facts.noise == "constant" or residuals.count < LEAST:
        return known
    places, z, _ = residuals.together()
    inputs = snapshot.model.inputs
    process = settle_process(
        places, z, [np.full(inputs, np.sqrt(inputs)), metric(snapshot.model.shared.kernel, inputs)]
    )
    gain = gain_of(residuals, process)
    taken = gain.decisive or snapshot.facts.noise == "varying"
    return known | {
        "gain": gain.nats,
        "gain_error": gain.error,
        "process": process.to_json() if taken else None,
    }
