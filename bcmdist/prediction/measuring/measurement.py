"""Measure the error distribution after a fit, from leave-one-out residuals that are stored with the ledger.

This is done once per model, and again when it has absorbed twice as many rows. In between, ingestion records the
residuals of arriving partitions.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.committee.absorbed import readable_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.prediction.errors.error_distribution import FADED, LEAST, LEAST_VARYING, residuals_of, varying_process
from bcmdist.prediction.errors.gap_scale import find_indicators, fit_gap_scale
from bcmdist.prediction.leave_one_out import sites_repeat
from bcmdist.prediction.measuring.left_out_errors import LeaveOut
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.entry import ResidualRecord, named_range

# Approximate number of rows left out, and largest number of partitions they are taken from (more if these are small).
ROWS, PARTITIONS = 4000, 16
# Least number of rows to leave out, where the data have so many.
FEWEST = 500
# For local prediction, which costs a local expert per cell: the share of all rows that is left out, and the limits of
# their number, `ROWS_PER_CELL` of each cell, more where there are few cells. The scale of errors is similar within a
# cell, so a few rows of many cells represent new rows better than all rows of a few: intervals of 95 % held .93 of the
# rows of table pol with whole cells of 80 rows, and .96 with 20 of each. One in `COMMITTEE_EVERY` partitions also gives
# residuals of the committee.
LOCAL_SHARE, LOCAL_ROWS, ROWS_PER_CELL, COMMITTEE_EVERY = 1 / 30, (1600, 4000), 20, 3
# Limit on the coordinates of places of residuals in a ledger.
NUMBERS = 2**17
# With this many residuals in the ledger, as after many arrivals, no rows are left out again.
ENOUGH = 1000
# Growth of the number of rows absorbed after which errors are measured again.
AGAIN = 2.0
SEED = 0


def measured(snapshot: Snapshot, runtime, *, read=True) -> Snapshot:
    """The snapshot with a measured error distribution, which remains to be committed.

    The snapshot is returned unchanged for a classification model, if the measurement is up to date, or if there are
    too few residuals and no rows to leave out.

    Parameters
    ----------
    read : whether absorbed rows may be read; if not, only residuals in the ledger are used
    """
    facts, rows = snapshot.facts, snapshot.committee.total.rows
    if not _measurable(snapshot) or (facts.errors.error_scale and rows < AGAIN * facts.errors.error_scale.rows):
        return snapshot
    stages = StageTimer()
    with stages("errors"):
        if residuals_of(facts, snapshot.ledger, facts.method).count < ENOUGH:
            left_out = _left_out(snapshot, runtime) if read else snapshot
            if left_out is snapshot:
                return snapshot
            snapshot = left_out
        error_scale = _error_distribution(snapshot)
    return snapshot.changed(stages=stages, spread=error_scale)


def measured_anew(snapshot: Snapshot, runtime) -> Snapshot:
    """As `measured`, for a committee whose stored residuals come from other committees.

    Residuals of the fitted partitions that can be read are discarded, and rows are left out again; other residuals
    stay.
    """
    if not _measurable(snapshot):
        return snapshot
    stages = StageTimer()
    with stages("errors"):
        readable = {part.key for part in readable_partitions(snapshot)}
        blank = [replace(e, residuals=None) if e.key in readable and not e.arrival else e for e in snapshot.ledger]
        snapshot = _left_out(snapshot.changed(entries=blank, rewrite=True), runtime)
        error_scale = _error_distribution(snapshot)
    return snapshot.changed(stages=stages, spread=error_scale)


def _measurable(snapshot):
    rows, likelihood = snapshot.committee.total.rows, snapshot.model.likelihood
    return snapshot.facts.errors.noise is not None and likelihood.corrected_by == "errors" and rows >= LEAST


def _left_out(snapshot, runtime):
    """The snapshot with leave-one-out residuals of fitted partitions.

    The same object if no residuals could be computed.
    """
    facts, local = snapshot.facts, snapshot.facts.method == "local"
    parts = fitted_partitions(snapshot)
    if not parts:
        return snapshot
    rows = sum(part.rows for part in parts)
    sample = residual_sample(len(parts), rows, snapshot.model.inputs, (facts.cells.core or 1) * local)
    chosen = some_partitions(parts, sample.partitions)
    at = BlobReference(snapshot.url, facts.linearisation.linearised_at) if facts.linearisation.linearised_at else None
    found: dict[str, ResidualRecord] = {}
    with snapshot.drafted() as readable:
        task = functools.partial(LeaveOut, readable.reference, sample.count, local, sample.rows_per_cell, at=at)
        if snapshot.model.likelihood.exact or sites_repeat(facts):
            found = runtime.sum(task(local=False), chosen[:: sample.committee_stride], label="errors").by_key
        if local:  # the places in the records belong to local residuals
            near = runtime.sum(task(local=True), chosen, label="errors").by_key
            found = {
                key: replace(record, committee=found[key].committee) if found.get(key) else record
                for key, record in near.items()
            }
    if not found:
        return snapshot
    entries = [replace(e, residuals=found[e.key] or None) if e.key in found else e for e in snapshot.ledger]
    return readable.changed(entries=entries, rewrite=True)


def fitted_partitions(snapshot: Snapshot) -> list[Partition]:
    """Readable partitions of the fit, for local predictions those in cells; the rows of arrived ones may be gone."""
    facts, local = snapshot.facts, snapshot.facts.method == "local"
    fit = {entry.key for entry in snapshot.ledger if not entry.arrival}
    absorbed = [part for part in readable_partitions(snapshot) if part.key in fit and part.weight > FADED]
    return [part for part in absorbed if not local or named_range(part.key)[0] == facts.cells.array]


def some_partitions(parts: list[Partition], count: int) -> list[Partition]:
    """`count` random partitions, in their order."""
    return [parts[k] for k in np.sort(np.random.default_rng(SEED).permutation(len(parts))[:count])]


@dataclass(frozen=True)
class ResidualSample:
    """Which rows are left out to measure errors."""

    partitions: int
    """number of partitions with such rows"""
    count: int
    """number of rows of each partition, or of cells, of which all rows are predicted"""
    rows_per_cell: int
    """rows of each cell whose residuals are kept"""
    committee_stride: int
    """the k of one in k partitions in which the committee predicts, too"""


def residual_sample(parts: int, rows: int, inputs: int, core: int) -> ResidualSample:
    """How many rows to leave out.

    Parameters
    ----------
    parts, rows : partitions that may be chosen, and their rows
    core : rows of a cell of local prediction; 0 if only the committee predicts
    """
    wanted = max(FEWEST, min(np.clip(LOCAL_SHARE * rows, *LOCAL_ROWS) if core else ROWS, NUMBERS // inputs))
    if not core:
        count = min(parts, max(PARTITIONS, int(np.ceil(FEWEST * parts / rows))))
        return ResidualSample(count, int(np.ceil(wanted / count)), 1, 1)
    least = min(core, ROWS_PER_CELL)
    rows_per_cell = max(least, int(np.ceil(wanted * core / rows)))
    cells = wanted / rows_per_cell
    count = min(parts, int(np.ceil(cells)))
    per_partition = int(np.ceil(cells / count) if rows_per_cell > least else max(1, round(cells / count)))
    stride = COMMITTEE_EVERY if wanted >= FEWEST * COMMITTEE_EVERY else 1
    return ResidualSample(count, per_partition, rows_per_cell, stride)


def _error_distribution(snapshot) -> dict:
    """The fact `spread` from the residuals of the ledger: the process of the scale of errors, if it varies, and the
    indicators of gaps."""
    residuals = residuals_of(snapshot.facts, snapshot.ledger, snapshot.facts.method)
    indicators = find_indicators(snapshot.model)
    rows = snapshot.committee.total.rows
    scale = {"rows": rows, "gain": None, "gain_error": None, "process": None, "gaps": indicators}
    if snapshot.facts.errors.noise == "constant" or residuals.count < LEAST_VARYING:
        return scale
    if indicators:
        residuals = residuals.relative_to(fit_gap_scale(indicators, *residuals.arrays()))
    process, gain = varying_process(residuals, snapshot.model.shared.kernel, snapshot.model.inputs)
    taken = gain.decisive or snapshot.facts.errors.noise == "varying"
    return scale | {
        "gain": gain.nats,
        "gain_error": gain.error,
        "process": process.to_json() if taken else None,
    }
