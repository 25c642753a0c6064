"""Calibration of class probabilities: when it is done, and what is stored in the facts of a commit.

Likelihoods without probabilities are calibrated on held-out rows. Two-class likelihoods with probabilities are
recalibrated if leave-one-out predictions gain by it (`bcmdist.prediction.errors.recalibration`).
"""

import math
from dataclasses import asdict

from bcmdist.committee.absorbed import readable_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.model import named_parameters
from bcmdist.prediction.errors.held_out import CALIBRATION_ROWS, HeldOut, LeftOutByCommittee, some_of, without_some
from bcmdist.prediction.errors.platt_scaling import fit_calibration
from bcmdist.prediction.errors.recalibration import fit_recalibration
from bcmdist.prediction.leave_one_out import sites_repeat
from bcmdist.storage.commits import BlobReference

RECALIBRATE_SHARE = 0.1  # relative change of the number of rows absorbed after which a calibration is outdated


def calibrated(snapshot: Snapshot, runtime, *, since=0) -> Snapshot:
    """The snapshot with calibrated or recalibrated class probabilities, which remain to be committed.

    The snapshot is returned unchanged if they are up to date.

    Parameters
    ----------
    since : number of rows absorbed at the last check, 0 if there was none; needed since a check that corrects nothing
        is not recorded
    """
    correction = snapshot.model.likelihood.corrected_by if snapshot.ledger else ""
    if correction == "calibration":
        return _calibrated(snapshot, runtime)
    return _recalibrated(snapshot, runtime, since) if correction == "recalibration" else snapshot


def _calibrated(snapshot, runtime):
    rows, before = snapshot.committee.total.rows, snapshot.facts.errors.calibration
    if before and not _many(rows, before.rows):
        return snapshot
    held_out, without = without_some(snapshot, runtime)
    if not held_out:
        return snapshot
    arrays = {"eta": without.total.eta, "precision": without.total.precision}
    with snapshot.store.transient(arrays) as references:
        task = HeldOut(snapshot.reference, **references)
        found = fit_calibration(runtime.sum(task, held_out, label="calibrate"))
    return snapshot.changed(calibration=asdict(found) | {"rows": rows})


def _recalibrated(snapshot, runtime, since):
    """Recalibrate the probabilities of Laplace approximations, whose sites can be recomputed, if they are outdated."""
    facts, rows, at = snapshot.facts, snapshot.committee.total.rows, snapshot.facts.linearisation.linearised_at
    before = facts.errors.recalibration
    moved = before.linearised_at != at if before else False
    if not sites_repeat(facts):
        return snapshot
    if not moved and not (_many(rows, before.rows) if before else _passed(rows, since)):
        return snapshot
    parts = some_of(readable_partitions(snapshot), CALIBRATION_ROWS)
    if not parts:
        return snapshot
    with snapshot.drafted() as readable:
        task = LeftOutByCommittee(readable.reference, CALIBRATION_ROWS, BlobReference(snapshot.url, at) if at else None)
        left_out = runtime.sum(task, parts, label="calibrate")
    found = fit_recalibration(left_out, snapshot.model.likelihood, _learned(snapshot))
    if found is None and before is None:
        return snapshot
    corrected = found and asdict(found) | {"rows": rows, "linearised_at": at}
    return readable.changed(recalibration=corrected)


def _many(rows, before):
    return abs(rows - before) > RECALIBRATE_SHARE * before


def _passed(rows, since):
    """Whether two row counts lie in different steps of a geometric grid of ratio 1 + `RECALIBRATE_SHARE`.

    True if `since` is 0: nothing was checked before.
    """
    steps = [math.floor(math.log(max(count, 1)) / math.log1p(RECALIBRATE_SHARE)) for count in (rows, since)]
    return since == 0 or steps[0] != steps[1]


def _learned(snapshot):
    """Number of hyper-parameters that were learned; 0 if learning was off."""
    model = snapshot.model
    parameters = named_parameters(model.shared.kernel, model.likelihood)
    return sum(map(len, parameters.values())) if snapshot.facts.learning.evaluations != 0 else 0
