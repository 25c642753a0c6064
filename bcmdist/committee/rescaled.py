"""Committees in the scaled units of another committee, whose model is the same in original units.

Messages stay as they are, but for the unit of the densities in their evidence (`bcmdist.model.conversion`).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.growth import why_fixed
from bcmdist.committee.passes import densities
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.conversion import converted, log_length, moved_inputs
from bcmdist.model.model import described
from bcmdist.model.scaling import scaling_to_array
from bcmdist.storage.entry import Entry


def rescaled(snapshot: Snapshot, like: Snapshot) -> Snapshot:
    """A committee in the units of another one, not committed; the snapshot itself where this is not possible.

    That is where the two models differ in more than their units and query points, or the query set of one cannot
    change.
    """
    if snapshot is like or _units(snapshot) == _units(like) or why_fixed(snapshot) or why_fixed(like):
        return snapshot
    model, shift = converted(snapshot.model, like.model), log_length(like.model) - log_length(snapshot.model)
    count = densities(snapshot.model, snapshot.facts, snapshot.ledger)
    if model is None or (shift and count is None):
        return snapshot
    total = snapshot.committee.total
    total = replace(total, evidence=total.evidence + shift * (count or 0.0))
    ledger = snapshot.ledger.replaced(_rescaled_residuals(one, snapshot, like, shift) for one in snapshot.ledger)
    return replace(snapshot, model=model, committee=Committee(total, model.shared.belief), ledger=ledger)


def _units(snapshot: Snapshot) -> tuple[Any, ...]:
    """What scaled inputs and targets, and hyper-parameters in their units, are stored as."""
    model = snapshot.model
    return scaling_to_array(model.scaling).tolist(), described(model.shared.kernel, model.likelihood)


def _rescaled_residuals(entry: Entry, snapshot: Snapshot, like: Snapshot, shift: float) -> Entry:
    """A ledger entry whose residuals are at inputs, and of variances, in other units."""
    if entry.residuals is None:
        return entry
    places, log_variance = np.split(entry.residuals.places, [-1], axis=1)
    moved = np.hstack([moved_inputs(places, snapshot.model, like.model), log_variance - 2.0 * shift])
    return replace(entry, residuals=replace(entry.residuals, places=moved))
