"""The spread of errors, measured at the end of a fit by rows that are left out, and noted in the ledger.

Once for a model, and again when it has heard twice as many rows: meanwhile arrivals note their own residuals.
"""

import numpy as np

from bcmdist.committee.passes import heard_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import BcmdistError, CommitConflict
from bcmdist.model.kernels import metric
from bcmdist.prediction.measuring.tasks import LeaveOut
from bcmdist.prediction.scale import settle_process
from bcmdist.prediction.spread import LEAST, Residuals, gain_of
from bcmdist.prediction.spread_of import residuals_known
from bcmdist.runtime.timing import StageTimer

# Rows that are left out, about, and of how many partitions at most; by local prediction, which takes a local expert for
# each 80 of them; and numbers of a ledger that tell where they were.
ROWS, PARTITIONS, LOCAL_ROWS, NUMBERS = 4000, 16, 2500, 2**17
# Residuals of arrivals that are enough not to leave out rows again.
ENOUGH = 1000
AGAIN = 2.0


def measured(snapshot: Snapshot, runtime) -> Snapshot:
    """The commit that knows how errors are spread; of a model without normal noise the same one."""
    facts, rows = snapshot.facts, snapshot.committee.total.rows
    if facts.noise is None or not snapshot.model.likelihood.normal or not snapshot.ledger:
        return snapshot
    if facts.spread and rows < AGAIN * facts.spread["rows"]:
        return snapshot
    stages = StageTimer()
    with stages("errors"):
        ledger = snapshot.ledger
        if residuals_known(facts, ledger, facts.method).count < ENOUGH:
            ledger = _left_out(snapshot, runtime)
        spread = _settled(snapshot, residuals_known(facts, ledger, facts.method))
    try:
        if ledger is snapshot.ledger:
            return snapshot.successor(snapshot.committee, [], stages=stages, spread=spread)
        return snapshot.successor(snapshot.committee, ledger, rewrite=True, stages=stages, spread=spread)
    except CommitConflict:  # who has heard more measures too
        return snapshot.newest()


def _left_out(snapshot, runtime):
    """The ledger with the residuals of rows that are left out; as it is where rows cannot be read any more."""
    parts = heard_partitions(snapshot)
    chosen = [parts[k] for k in np.unique(np.linspace(0, len(parts) - 1, min(PARTITIONS, len(parts))).astype(int))]
    local = snapshot.facts.method == "local"
    most = min(LOCAL_ROWS if local else ROWS, NUMBERS // snapshot.model.inputs)
    task = LeaveOut(snapshot.reference, max(1, -(-most // len(chosen))), local)
    try:
        found = runtime.sum(task, chosen, label="errors").by_key
    except BcmdistError:
        return snapshot.ledger
    return tuple(snapshot.noting(found))


def _settled(snapshot, residuals: Residuals) -> dict:
    """What residuals say of the scale of errors, as the fact `spread`."""
    known = {"rows": snapshot.committee.total.rows, "gain": None, "gain_error": None, "process": None}
    if snapshot.facts.noise == "constant" or residuals.count < LEAST:
        return known
    X, z, _ = residuals.together()
    inputs = snapshot.model.inputs
    process = settle_process(X, z, [np.full(inputs, np.sqrt(inputs)), metric(snapshot.model.shared.kernel, inputs)])
    gain = gain_of(residuals, process)
    taken = gain.decisive or snapshot.facts.noise == "varying"
    return known | {
        "gain": gain.nats,
        "gain_error": gain.error,
        "process": process.to_json() if taken else None,
    }
