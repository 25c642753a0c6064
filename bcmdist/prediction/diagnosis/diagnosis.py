"""What reading the data once more can tell about a fitted committee."""

import numpy as np

from bcmdist.committee import passes
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import refuse_changed
from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.targets import model_rows
from bcmdist.prediction.diagnosis.degrees import Degrees
from bcmdist.prediction.diagnosis.reliability import PartitionRows, Reliability, reliability
from bcmdist.prediction.scoring.pit import LEVELS
from bcmdist.runtime import memory
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.ledger import Entry

# Rows of the committee whose calibration is computed: some seconds, which grow with their square.
JUDGED_ROWS = 4000
# Of these rows, as many are points where it is computed.
CALIBRATION_POINTS = 500


def effective_parameters(snapshot: Snapshot, runtime) -> dict[str, float]:
    """Degrees of freedom of the data, `data`, and those seen through the query set, `query` (GBCM paper, 6.1).

    Where `data` is well above `query`, more query points would let the committee learn more.
    """
    likelihood = snapshot.model.likelihood
    snapshot.model.refuse_moved_inputs("degrees of freedom of the data")
    if likelihood.coupled or not snapshot.ledger:
        raise InvalidOption(
            f"degrees of freedom of the data: expected a committee that has heard rows of classes apart, got "
            f"{likelihood.name} after {len(snapshot.ledger)} partitions; leave them out"
        )
    data = runtime.sum(Degrees(snapshot.reference), passes.absorbed_partitions(snapshot), label="degrees of freedom")
    return {"data": data, "query": snapshot.degrees_of_freedom}


@one_thread()
def calibration(snapshot: Snapshot, *, allowed_bytes, seed=0) -> dict:
    """How often f lies in the intervals that a committee reports, if f is drawn from the model's Gaussian process.

    No sampling: see `reliability`. Of a large committee a smaller one with the same hyper-parameters and query set
    is judged, which has heard as many whole partitions, chosen by `seed`, as have `JUDGED_ROWS` rows.

    Returns
    -------
    `rows` and `partitions` of that committee; `coverage50 coverage80 coverage95` of the intervals of f, and
    `variance_ratio`, actual over reported, all at the query points; and as `at_rows` the same at some of its rows.

    Raises
    ------
    InvalidOption
        The likelihood is not Gaussian, so that the mean is not linear in the targets; nothing was heard; or the
        partitions are too large.
    MemoryLimit, DataChanged
    """
    query, likelihood = snapshot.model.query, snapshot.model.likelihood
    snapshot.model.refuse_moved_inputs("calibration")
    if not likelihood.normal:
        raise InvalidOption(
            f"calibration: expected a gaussian likelihood, whose errors are known without sampling, got "
            f"{likelihood.name}; score held-out rows instead"
        )
    rng = np.random.default_rng(seed)
    chosen = _whole_partitions(snapshot.ledger, rng)
    rows, largest = sum(entry.rows for entry in chosen), max(entry.rows for entry in chosen)
    count = min(rows, CALIBRATION_POINTS)
    memory.refuse_above(
        memory.reliability_bytes(
            rows, len(query.points) + count, largest, query.size, kernels=kernel_parts(query.kernel)
        ),
        allowed_bytes,
        what=f"calibration of {rows} rows",
        remedy="use a machine with more memory, or leave it out",
    )
    heard = [_heard(snapshot, entry) for entry in chosen]
    sample = np.vstack([part.X for part in heard])[rng.choice(rows, count, replace=False)]
    found = reliability(query, likelihood, heard, np.vstack([query.points, sample]))
    Q = len(query.points)
    return {"rows": rows, "partitions": len(chosen), **_figures(found[:Q]), "at_rows": _figures(found[Q:])}


def _whole_partitions(ledger, rng) -> list[Entry]:
    """Entries of at most `JUDGED_ROWS` rows together; of several partitions at least two."""
    chosen, rows = [], 0
    for entry in rng.permutation(np.array(ledger, dtype=object)):
        if rows + entry.rows <= JUDGED_ROWS:
            chosen.append(entry)
            rows += entry.rows
    if len(chosen) < max(1, min(2, len(ledger))):
        raise InvalidOption(
            f"calibration: expected a committee that has heard two partitions of together at most {JUDGED_ROWS} "
            f"rows (or one that is all), got {len(ledger)}, the smallest with "
            f"{min((entry.rows for entry in ledger), default=0)}; fit with lower --rows-per-expert"
        )
    return chosen


def _heard(snapshot, entry):
    (part, rows), *_ = read_all(
        [from_key(entry.key, y=snapshot.model.y_name, schema=snapshot.model.schema, weight=entry.weight)]
    )
    refuse_changed([Entry(part.key, rows.digest, part.rows)], snapshot.ledger)
    X, obs = model_rows(snapshot.model, part, rows)
    return PartitionRows(X, obs, part.weight)


def _figures(found: Reliability):
    coverages = {f"coverage{100 * level:.0f}": found.coverage(level) for level in LEVELS}
    return {**coverages, "variance_ratio": found.variance_ratio}
