"""Checks of a commit's contents: types of fields, shapes of arrays, and a ledger that adds up to the committee."""

from dataclasses import fields as fields_of

import numpy as np

from bcmdist.committee.fading import Weighting
from bcmdist.experts.expert import zero_message
from bcmdist.model.model import Model
from bcmdist.storage.fields import check_array, check_fields, damaged
from bcmdist.storage.kinds import (
    BLOB,
    COUNT,
    NAMED,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    SEVERAL,
    TEXT,
    each,
    every,
    fields,
    is_hash,
    maybe,
    nullable,
    one_of,
    shown,
)
from bcmdist.storage.ledger import CLASSES_NOTED, NUMBERS_NOTED

# Types of the fields of a commit's record: `FACTS` of the committee, `FIT` of its part "fit"; components come first.
CALIBRATION = fields({"slope": NUMBER, "bias": every(NUMBER), "rows": COUNT.perhaps})
RECALIBRATION = {"slope": POSITIVE, "intercept": NUMBER, "rows": COUNT, "linearised_at": maybe(BLOB)}
CELLS = {
    "core": SEVERAL.perhaps,
    "around": SEVERAL.perhaps,
    "array": TEXT.perhaps,
    "edges": BLOB.perhaps,
    "halos": BLOB.perhaps,
    "border_jump": NOT_NEGATIVE.perhaps,
    "border_jump_error": NOT_NEGATIVE.perhaps,
}
# Fields that local prediction needs, in the order in which a fit adds them.
CELL_STEPS = ("edges", "halos", "border_jump")
FADING = {"source": TEXT, "position": COUNT, "half_life": maybe(POSITIVE), "window": maybe(SEVERAL)}
PASS = {"pass": SEVERAL, "change": NOT_NEGATIVE.perhaps, "log_evidence": maybe(NUMBER), "halvings": COUNT.perhaps}
MARGIN = {"nats": nullable(NUMBER), "error": nullable(NOT_NEGATIVE)}
DECISION = {"of": TEXT, "taken": TEXT, "judge": TEXT, "over": each(fields(MARGIN))}
EXPECTED = {
    "partitions": COUNT,
    "surprise": NUMBER,
    "dispersion": POSITIVE,
    "samples": COUNT,
    "figures": every(NUMBER),
}
SPREAD = {
    "rows": SEVERAL,
    "gain": maybe(NUMBER),
    "gain_error": maybe(NOT_NEGATIVE),
    "process": maybe(
        fields({"points": every(every(NUMBER)), "variance": POSITIVE, "lengthscale": every(POSITIVE)}),
    ),
}
NETWORKS = {
    "rows": SEVERAL,
    "log_evidence": every(NUMBER),
    "noise_variance": every(POSITIVE),
    "evaluations": every(COUNT),
}
LAG = {"partitions": COUNT, "rows": COUNT, "seconds": NOT_NEGATIVE, "at": NOT_NEGATIVE}
SITES = {
    "sweeps": SEVERAL,
    "energy": maybe(NUMBER),
    "moved": NOT_NEGATIVE,
    "skipped": NOT_NEGATIVE,
    "density_tied": maybe(NUMBER),
}
DEEP = {
    "rows": SEVERAL,
    "left_out": COUNT,
    "energies": every(NUMBER).perhaps,
    "densities": every(NUMBER).perhaps,
    "density": maybe(NUMBER),
    "evaluations": COUNT,
    "sites": every(fields(SITES)).perhaps,
}
FIT = {
    "approximation": one_of(("laplace", "ep")),
    "expert": TEXT.perhaps,
    "linearise": one_of(("own", "running")),
    "passes": every(fields(PASS)),
    "query_asked": SEVERAL,
    "rows_per_expert": SEVERAL,
    "kernels_tried": each(maybe(NUMBER)),
    "at_bounds": every(TEXT),
    "seconds": each(NOT_NEGATIVE),
    "surveyed": BLOB,
    "job": TEXT,
    "data": TEXT.perhaps,
    "evaluations": COUNT.perhaps,
    "method": one_of(("committee", "local", "augmented")).perhaps,
    "fading": maybe(fields(FADING)),
    "skipped": every(TEXT).perhaps,
    "cells": maybe(fields(CELLS)),
    "calibration": maybe(CALIBRATION),
    "local_calibration": maybe(CALIBRATION),
    "recalibration": maybe(fields(RECALIBRATION)),
    "chunks": BLOB.perhaps,
    "linearised_at": maybe(BLOB),
    "objective": maybe(NUMBER),
    "degrees_estimated": maybe(NUMBER),
    "settled": NAMED.perhaps,
    "decisions": every(fields(DECISION)).perhaps,
    "companions": every(TEXT).perhaps,
    "between_partitions": NUMBER.perhaps,
    "expected": maybe(fields(EXPECTED)),
    "halving_loss": maybe(fields({"nats": NUMBER, "error": NOT_NEGATIVE})),
    "repeats": maybe(fields({"share": NOT_NEGATIVE, "deviation": NOT_NEGATIVE})),
    "labels": each(COUNT).perhaps,
    "whole_targets": COUNT.perhaps,
    "noise": maybe(one_of(("auto", "constant", "varying"))),
    "spread": maybe(fields(SPREAD)),
    "networks": maybe(fields(NETWORKS)),
    "lag": maybe(each(fields(LAG))),
    "deep": maybe(fields(DEEP)),
    "input_errors": maybe(NAMED),
}
FACTS = {"model": NAMED, "fit": NAMED, "evidence": NUMBER, "rows": COUNT, "partitions": COUNT.perhaps}

# Tolerated rounding error of a sum of precisions after withdrawals, as a share of its largest entry.
PRECISION_TOLERANCE = 1e-6


def check_belief(arrays, facts, model: Model, where: str) -> None:
    """Raise `ModelDamaged` unless eta, precision and facts are valid for `model`; `where` names the commit."""
    check_fields(facts, FACTS, where)
    check_fit(facts["fit"], model, where)
    expected = zero_message(model.shared, model.likelihood)
    for name in ("eta", "precision"):
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")
        check_array(arrays[name], where, name, shape=getattr(expected, name).shape)
    if arrays["precision"].ndim > 1:
        _check_matrix(arrays["precision"], where)


def _check_matrix(precision, where):
    """Raise `ModelDamaged` unless a precision is symmetric with a non-negative diagonal, up to rounding."""
    most = np.abs(precision).max(initial=0.0) * PRECISION_TOLERANCE
    if np.abs(precision - np.swapaxes(precision, -1, -2)).max(initial=0.0) > most:
        raise damaged(where, "a symmetric matrix in precision", "another one")
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    if diagonal.min(initial=0.0) < -max(most, PRECISION_TOLERANCE):
        raise damaged(where, "a positive semi-definite matrix in precision", f"{diagonal.min():g} on its diagonal")


def check_fit(facts, model: Model, where: str) -> None:
    """Raise `ModelDamaged` if a fact of the fit has the wrong type, or a fact that it requires is missing."""
    check_fields(facts, FIT, where)
    if set(facts.get("expected") or {}) - EXPECTED.keys():
        raise damaged(where, f"{', '.join(EXPECTED)} as expected", shown(facts["expected"]))
    if model.input_errors is not None and facts.get("input_errors") is not None:
        check_fields(facts["input_errors"], model.input_errors.FACTS, f"{where}: input_errors")
    _check_process((facts.get("spread") or {}).get("process"), model.inputs, where)
    fading = facts.get("fading") or {}
    if set(fading) - {field.name for field in fields_of(Weighting)}:
        raise damaged(where, "a source, its position, half_life and window as fading", shown(fading))
    cells, classes = facts.get("cells") or {}, len(model.classes or (0, 1))
    for name in ("calibration", "local_calibration"):
        if facts.get(name) and len(facts[name]["bias"]) != classes:
            raise damaged(where, f"{classes} numbers as bias of {name}", shown(facts[name]["bias"]))
    steps = [name for name in CELL_STEPS if name in cells]
    complete = {"core", "around", "array"} <= cells.keys() and model.cells is not None
    if steps != list(CELL_STEPS[: len(steps)]) or (steps and not complete):
        raise damaged(where, "cells with core, around, array, edges, halos and border_jump", shown(sorted(cells)))
    if facts.get("method") == "local" and "border_jump" not in cells:
        raise damaged(where, "cells, for the method local", shown(sorted(cells)))


def _check_process(process, inputs, where):
    """Raise `ModelDamaged` unless points and lengthscales of the error-scale process have `inputs` + 1 numbers each."""
    if process is not None:
        widths = {len(point) for point in [*process["points"], process["lengthscale"]]}
        if widths != {inputs + 1} or not process["points"]:
            raise damaged(where, f"{inputs + 1} numbers in each point and lengthscale of spread", f"{sorted(widths)}")


def check_ledger(ledger, facts, inputs, where: str) -> None:
    """Raise `ModelDamaged` if ledger entries are invalid or do not add up to the rows and partitions in `facts`."""
    keys = [entry.key for entry in ledger]
    if len(set(keys)) < len(keys):
        raise damaged(where, "each partition once in the ledger", f"{len(keys) - len(set(keys))} twice")
    noted = {len(entry.arrival) for entry in ledger if entry.arrival}
    if len(noted) > 1 or noted - {len(CLASSES_NOTED), len(NUMBERS_NOTED)}:
        raise damaged(where, "as many numbers as arrival of each ledger entry", f"{sorted(noted)} of them")
    if any(len(entry.surprise) not in (0, 2) for entry in ledger):
        raise damaged(where, "a mean and its variance as surprise of each ledger entry", "others")
    for entry in ledger:
        if entry.residuals and entry.residuals.places.shape[1] != inputs + 1:
            found = f"{entry.residuals.places.shape[1]} numbers each"
            raise damaged(where, f"residuals at places of {inputs} inputs and a variance for {entry.key}", found)
        if entry.residuals and not is_hash(entry.digest):
            raise damaged(where, f"a hash as digest of {entry.key}, which has residuals", shown(entry.digest))
    rows = sum(entry.rows for entry in ledger)
    if rows != facts["rows"]:
        raise damaged(where, f"{facts['rows']} rows in the ledger, as absorbed", f"{rows}")
    if facts.get("partitions", len(ledger)) != len(ledger):
        raise damaged(where, f"{facts['partitions']} partitions in the ledger", f"{len(ledger)}")
