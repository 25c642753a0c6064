"""Load the committee and facts of a commit, and check types, shapes, and that the ledger adds up to the committee."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts
from bcmdist.committee.measurements import GapIndicators, ScaleProcess
from bcmdist.experts.message import Message, zero_message
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.loading import load_model, sound_model
from bcmdist.model.model import COMMITTEE_ARRAYS, Model
from bcmdist.model.shared.interface import Arrays
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.commits import Commit, Reference, load_record, open_store
from bcmdist.storage.entry import CLASS_SCORES, NUMBER_SCORES
from bcmdist.storage.fields import Blob, Count, Number, damaged, decode, shown
from bcmdist.storage.ledger import Ledger

# Fields that local prediction needs, in the order in which a fit adds them.
CELL_STEPS = ("edges", "halos", "border_jump")
# Tolerated rounding error of a sum of precisions after withdrawals, as a share of its largest entry.
PRECISION_TOLERANCE = 1e-6


class Stored(msgspec.Struct):
    """The part `facts` of a commit's record."""

    model: dict[str, Any]
    fit: dict[str, Any]
    evidence: Number
    rows: Count
    partitions: Count | None = None


def load_committee(reference: Reference) -> Committee:
    """Load the committee of a commit.

    Raises
    ------
    ModelDamaged, ModelNotFound
    """
    store, record, where = open_store(reference.url), load_record(reference), reference.place
    stored, model = decode(Stored, record["facts"], where), load_model(reference)
    require_arrays(record["arrays"], COMMITTEE_ARRAYS, where)
    return _committee(
        {name: store.get_array(record["arrays"][name]) for name in COMMITTEE_ARRAYS}, stored, model, where
    )


@lru_cache(maxsize=8)
def load_facts(reference: Reference) -> Facts:
    """Load the facts of a commit; cached, for tasks on workers.

    Raises
    ------
    ModelDamaged, ModelNotFound
    """
    where, model = reference.place, load_model(reference)
    return sound_facts(decode(Stored, load_record(reference)["facts"], where).fit, model, where)


def sound_committee(url: str, commit: Commit) -> tuple[Model, Committee, Facts]:
    """Model, committee and facts of a commit, checked for consistency.

    Raises
    ------
    ModelDamaged
        The contents are inconsistent although the checksums match.
    """
    where = f"{url}: commit {commit.number}"
    stored = decode(Stored, commit.facts, where)
    model = sound_model(commit.arrays, stored.model, where)
    committee = _committee(commit.arrays, stored, model, where)
    facts = sound_facts(stored.fit, model, where)
    _check_ledger(commit.ledger, stored, model, where)
    return model, committee, facts


def _committee(arrays: Arrays, stored: Stored, model: Model, where: str) -> Committee:
    """Build the committee, after checking shapes, and that the precision is symmetric and positive semi-definite."""
    expected = zero_message(model.shared, model.likelihood)
    require_arrays(arrays, COMMITTEE_ARRAYS, where)
    for name in COMMITTEE_ARRAYS:
        check_array(arrays[name], where, name, shape=getattr(expected, name).shape)
    eta, precision = (arrays[name] for name in COMMITTEE_ARRAYS)
    if precision.ndim > 1:
        _check_matrix(precision, where)
    message = Message(eta, np.asfortranarray(precision), stored.evidence, stored.rows)
    return Committee(message, model.shared.belief)


def _check_matrix(precision: FloatArray, where: str) -> None:
    """Raise `ModelDamaged` unless a precision is symmetric with a non-negative diagonal, up to rounding."""
    most = np.abs(precision).max(initial=0.0) * PRECISION_TOLERANCE
    if np.abs(precision - np.swapaxes(precision, -1, -2)).max(initial=0.0) > most:
        raise damaged(where, "a symmetric matrix in precision", "another one")
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    if diagonal.min(initial=0.0) < -max(most, PRECISION_TOLERANCE):
        raise damaged(where, "a positive semi-definite matrix in precision", f"{diagonal.min():g} on its diagonal")


def sound_facts(fit: Mapping[str, Any], model: Model, where: str) -> Facts:
    """Decode the facts of a fit, and check that they agree with the model and with each other.

    Raises
    ------
    ModelDamaged
    """
    facts = Facts.from_json(fit, where)
    if facts.errors.error_scale and facts.errors.error_scale.process:
        _check_process(facts.errors.error_scale.process, model.inputs, where)
    if facts.errors.error_scale and facts.errors.error_scale.gaps:
        _check_indicators(facts.errors.error_scale.gaps, model.inputs, where)
    classes = len(model.classes or (0, 1))
    for name in ("calibration", "local_calibration"):
        calibration = getattr(facts.errors, name)
        if calibration and len(calibration.bias) != classes:
            raise damaged(where, f"{classes} numbers as bias of {name}", shown(calibration.bias))
    cells = facts.cells.to_json()
    steps = [name for name in CELL_STEPS if name in cells]
    complete = {"core", "around", "array"} <= cells.keys() and model.cells is not None
    if steps != list(CELL_STEPS[: len(steps)]) or (steps and not complete):
        raise damaged(where, "cells with core, around, array, edges, halos and border_jump", shown(sorted(cells)))
    if facts.method == "local" and not facts.cells.surrounded:
        raise damaged(where, "cells, for the method local", shown(sorted(cells)))
    return facts


def _check_process(process: ScaleProcess, inputs: int, where: str) -> None:
    """Raise `ModelDamaged` unless points and lengthscales of the error-scale process have `inputs` + 1 numbers each."""
    widths = {len(point) for point in [*process.points, process.lengthscale]}
    if widths != {inputs + 1} or not process.points:
        raise damaged(where, f"{inputs + 1} numbers in each point and lengthscale of spread", f"{sorted(widths)}")


def _check_indicators(gaps: GapIndicators, inputs: int, where: str) -> None:
    """Raise `ModelDamaged` unless indicators of gaps are ascending numbers of inputs with a threshold each."""
    numbers = gaps.inputs
    if numbers != sorted(set(numbers)) or numbers[-1] >= inputs or len(gaps.thresholds) != gaps.count:
        expected = f"ascending numbers below {inputs} in spread.gaps, and a threshold for each"
        raise damaged(where, expected, f"{shown(numbers)} and {shown(gaps.thresholds)}")


def _check_ledger(ledger: Ledger, stored: Stored, model: Model, where: str) -> None:
    """Raise `ModelDamaged` if ledger entries are invalid or do not add up to the rows and partitions in `stored`."""
    inputs, last = model.inputs, len(model.earlier)
    if any(query > last or model.earlier.lacks(query) for query in ledger.queries):
        raise damaged(where, f"the number of a known query set, up to {last}, as query of each ledger entry", "others")
    lengths = ledger.arrivals
    if len(lengths) > 1 or lengths - {len(CLASS_SCORES), len(NUMBER_SCORES)}:
        raise damaged(where, "as many numbers as arrival of each ledger entry", f"{sorted(lengths)} of them")
    for entry in ledger.recorded.values():
        if entry.residuals and entry.residuals.places.shape[1] != inputs + 1:
            found = f"{entry.residuals.places.shape[1]} numbers each"
            raise damaged(where, f"residuals at places of {inputs} inputs and a variance for {entry.key}", found)
        if entry.residuals:
            decode(Blob, entry.digest, where, f"digest of {entry.key}, which has residuals")
    if ledger.rows != stored.rows:
        raise damaged(where, f"{stored.rows} rows in the ledger, as absorbed", f"{ledger.rows}")
    if stored.partitions not in (None, len(ledger)):
        raise damaged(where, f"{stored.partitions} partitions in the ledger", f"{len(ledger)}")
