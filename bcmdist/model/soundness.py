"""Whether what a commit says of a model can be: fields by type, arrays by shape, and numbers that must agree.

Looked at whenever a commit is loaded, by whoever loads it; see `fields` for what is asked of bytes. What is consistent
in itself (another eta) cannot be told from what was fitted. The factor of the query covariance can: it is compared with
the kernel at the query points, by the norms of its rows and in a few columns, which costs O(Q^2).
"""

import itertools
from dataclasses import fields as fields_of

import numpy as np

from bcmdist.committee.fading import CLASSES_NOTED, NUMBERS_NOTED, Fading
from bcmdist.errors import BcmdistError
from bcmdist.experts.expert import zero_message
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import CLASS_LIKELIHOODS, LIKELIHOODS, make_likelihood, task_of
from bcmdist.model.mean import MEAN_NAMES
from bcmdist.model.model import ARRAYS, CELL_ARRAYS, Model, from_arrays
from bcmdist.model.scaling import CONSTANT_SHARE
from bcmdist.storage.fields import (
    BLOB,
    COUNT,
    NAMED,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    SEVERAL,
    TEXT,
    Kind,
    check_array,
    check_fields,
    damaged,
    each,
    every,
    fields,
    is_number,
    maybe,
    one_of,
    shown,
)

SCALE = Kind(
    "a positive number whose square is one",
    lambda value: is_number(value) and value > 0 and 0 < float(value) * float(value) < np.inf,
)
MODEL = {
    "kernel": TEXT,
    "kernel_parameters": each(every(POSITIVE)),
    "mean": one_of(MEAN_NAMES),
    "jitter": NOT_NEGATIVE,
    "likelihood": one_of((*LIKELIHOODS, *CLASS_LIKELIHOODS)),
    "likelihood_parameters": each(every(POSITIVE)),
    "y_mean": NUMBER,
    "y_scale": SCALE,
    "x": TEXT,
    "y": TEXT,
    "classes": maybe(every(NUMBER)),
    "columns": every(TEXT).perhaps,
    "class_names": every(TEXT).perhaps,
}
CALIBRATION = fields({"slope": NUMBER, "bias": every(NUMBER), "rows": COUNT.perhaps})
CELLS = {
    "core": SEVERAL.perhaps,
    "around": SEVERAL.perhaps,
    "array": TEXT.perhaps,
    "edges": BLOB.perhaps,
    "halos": BLOB.perhaps,
    "border_jump": NOT_NEGATIVE.perhaps,
}
FADING = {"source": TEXT, "position": COUNT, "half_life": maybe(POSITIVE), "window": maybe(SEVERAL)}
PASS = {"pass": SEVERAL, "change": NOT_NEGATIVE.perhaps, "log_evidence": maybe(NUMBER), "halvings": COUNT.perhaps}
EXPECTED = {
    "partitions": COUNT,
    "surprise": NUMBER,
    "dispersion": POSITIVE,
    "samples": COUNT,
    "figures": every(NUMBER),
}
FIT = {
    "approximation": one_of(("laplace", "ep")),
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
    "method": one_of(("committee", "local")).perhaps,
    "fading": maybe(fields(FADING)),
    "skipped": every(TEXT).perhaps,
    "cells": maybe(fields(CELLS)),
    "calibration": maybe(CALIBRATION),
    "local_calibration": maybe(CALIBRATION),
    "chunks": BLOB.perhaps,
    "linearised_at": maybe(BLOB),
    "objective": maybe(NUMBER),
    "degrees_estimated": maybe(NUMBER),
    "settled": NAMED.perhaps,
    "companions": every(TEXT).perhaps,
    "between_partitions": NUMBER.perhaps,
    "expected": maybe(fields(EXPECTED)),
}
FACTS = {"model": NAMED, "fit": NAMED, "evidence": NUMBER, "rows": COUNT, "partitions": COUNT.perhaps}
# What local prediction needs, one after another as a fit adds it.
CELL_STEPS = ("edges", "halos", "border_jump")

# Columns in which the factor is compared, and how far it may be off, in units of the prior standard deviations: the
# kernel of near points is the square root of rounding on another machine. Arbitrary.
COLUMNS = 8
FACTOR_TOLERANCE = 1e-5
# Of a sum of precisions, in units of its largest entry: what messages that were withdrawn leave.
PRECISION_TOLERANCE = 1e-6


def sound_model(arrays, facts, where: str) -> Model:
    """The model of a commit's arrays and facts (`Model.to_arrays`), if it can be one.

    Raises
    ------
    ModelDamaged
    """
    check_fields(facts, MODEL, where)
    for name in ARRAYS:
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")
    points = arrays["query_points"]
    if points.ndim != 2 or 0 in points.shape:
        raise damaged(where, "rows and columns in query_points", f"shape {points.shape}")
    Q, D = points.shape
    _check_parts(facts, D, where)
    check_array(points, where, "query_points", shape=(Q, D))
    check_array(arrays["query_factor"], where, "query_factor", shape=(Q, Q))
    check_array(arrays["x_mean"], where, "x_mean", shape=(D,))
    check_array(arrays["x_scale"], where, "x_scale", shape=(D,), positive=True)
    _check_inputs(arrays["x_mean"], arrays["x_scale"], where)
    if CELL_ARRAYS[0] in arrays:
        _check_tree(arrays, D, where)
    model = from_arrays(arrays, facts)
    with np.errstate(all="ignore"):
        _check_factor(model.query, where)
    return model


def check_belief(arrays, facts, model: Model, where: str) -> None:
    """Raise `ModelDamaged` where eta, precision and what is known of the fit cannot be of a model."""
    check_fields(facts, FACTS, where)
    check_fit(facts["fit"], model, where)
    expected = zero_message(model.query, model.likelihood)
    for name in ("eta", "precision"):
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")
        check_array(arrays[name], where, name, shape=getattr(expected, name).shape)
    precision = arrays["precision"]
    most = np.abs(precision).max(initial=0.0) * PRECISION_TOLERANCE
    if np.abs(precision - np.swapaxes(precision, -1, -2)).max(initial=0.0) > most:
        raise damaged(where, "a symmetric matrix in precision", "another one")
    diagonal = np.diagonal(precision, axis1=-2, axis2=-1)
    if diagonal.min(initial=0.0) < -max(most, PRECISION_TOLERANCE):
        raise damaged(where, "a positive semi-definite matrix in precision", f"{diagonal.min():g} on its diagonal")


def check_fit(facts, model: Model, where: str) -> None:
    """Raise `ModelDamaged` where what a fit found out is not of its type, or lacks what it implies."""
    check_fields(facts, FIT, where)
    if set(facts.get("expected") or {}) - EXPECTED.keys():
        raise damaged(where, f"{', '.join(EXPECTED)} as expected", shown(facts["expected"]))
    fading = facts.get("fading") or {}
    if set(fading) - {field.name for field in fields_of(Fading)}:
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


def check_ledger(ledger, facts, where: str) -> None:
    """Raise `ModelDamaged` where a ledger does not add up to what a commit says it has heard."""
    keys = [entry.key for entry in ledger]
    if len(set(keys)) < len(keys):
        raise damaged(where, "each partition once in the ledger", f"{len(keys) - len(set(keys))} twice")
    noted = {len(entry.arrival) for entry in ledger if entry.arrival}
    if len(noted) > 1 or noted - {len(CLASSES_NOTED), len(NUMBERS_NOTED)}:
        raise damaged(where, "as many numbers as arrival of each ledger entry", f"{sorted(noted)} of them")
    if any(len(entry.surprise) not in (0, 2) for entry in ledger):
        raise damaged(where, "a mean and its variance as surprise of each ledger entry", "others")
    rows = sum(entry.rows for entry in ledger)
    if rows != facts["rows"]:
        raise damaged(where, f"{facts['rows']} rows in the ledger, as heard", f"{rows}")
    if facts.get("partitions", len(ledger)) != len(ledger):
        raise damaged(where, f"{facts['partitions']} partitions in the ledger", f"{len(ledger)}")


def _check_parts(facts, inputs, where):
    """Kernel and likelihood have parameters of their own names and lengths, and classes where they need them."""
    try:
        kernel = parse_kernel(facts["kernel"], inputs=inputs)
    except BcmdistError as error:
        raise damaged(where, "the name of a kernel as kernel", shown(facts["kernel"])) from error
    classes, name = facts.get("classes"), facts["likelihood"]
    ascending = classes is None or (len(classes) > 0 and all(a < b for a, b in itertools.pairwise(classes)))
    fitting = len(classes or (0, 1)) <= 2 or name in CLASS_LIKELIHOODS
    needed = classes is not None or name not in CLASS_LIKELIHOODS
    if not (ascending and fitting and needed) or (classes and task_of(name) != "classification"):
        raise damaged(where, f"the labels of {name} as classes", shown(classes))
    _check_names(facts, inputs, where)
    likelihood = make_likelihood(name, classes and len(classes))
    for parameters, field in (
        (kernel.parameters, "kernel_parameters"),
        (likelihood.parameters, "likelihood_parameters"),
    ):
        own = {n: len(value) for n, value in parameters.items()}
        found = {n: len(value) for n, value in facts[field].items()}
        if own != found:
            raise damaged(where, f"numbers of {own} as {field}", shown(found))


def _check_names(facts, inputs, where):
    """Each input has a name of its own or none has, and each class."""
    columns, names = facts.get("columns", []), facts.get("class_names", [])
    if len(columns) not in (0, inputs) or len(set(columns)) < len(columns):
        raise damaged(where, f"{inputs} different names as columns", shown(columns))
    numbers = facts.get("classes") or (0, 1)
    if names and (task_of(facts["likelihood"]) != "classification" or not set(numbers) <= set(range(len(names)))):
        raise damaged(where, f"names of the classes {shown(numbers)} as class_names", shown(names))


def _check_inputs(mean, scale, where):
    """A column that varies less than this beside its values counts as constant, of scale 1 (`scaling.Moments`)."""
    far = np.flatnonzero((scale != 1.0) & (np.abs(mean) * CONSTANT_SHARE > 2.0 * scale))
    if len(far):
        found = f"{mean[far[0]]:g} with scale {scale[far[0]]:g} in column {far[0]}"
        raise damaged(where, "columns of X that vary beside their means in x_mean", found)


def _check_factor(query, where):
    """L L' = k(X^q, X^q) + jitter I on the diagonal and in some columns."""
    L, Q = np.tril(query.factor), len(query.points)
    if not np.all(np.diagonal(L) > 0):
        raise damaged(where, "a positive diagonal of query_factor", "another one")
    prior = query.kernel.diagonal(query.points) + query.jitter
    sd = np.sqrt(np.maximum(prior, prior.mean()))
    columns = np.unique(np.linspace(0, Q - 1, min(Q, COLUMNS)).astype(int))
    expected = query.kernel.cross(query.points, query.points[columns])
    expected[columns, np.arange(len(columns))] += query.jitter
    off_diagonal = np.abs(np.einsum("ij,ij->i", L, L) - prior) / sd**2
    off_columns = np.abs(L @ L[columns].T - expected) / sd[:, None] / sd[columns]
    if not (off_diagonal.max() <= FACTOR_TOLERANCE and off_columns.max() <= FACTOR_TOLERANCE):
        raise damaged(
            where, "query_factor to be that of the kernel at query_points, with jitter", "that of another matrix"
        )


def _check_tree(arrays, inputs, where):
    """A binary tree, numbered as `cells.grow` does: children after their node, cells from left to right."""
    for name in CELL_ARRAYS:
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")
    direction, threshold, child, first = (arrays[name] for name in CELL_ARRAYS)
    nodes = len(threshold) if threshold.ndim else 0
    check_array(threshold, where, "cell_threshold", shape=(nodes,))
    check_array(direction, where, "cell_direction", shape=(nodes, inputs))
    check_array(child, where, "cell_child", shape=(nodes, 2), dtype=np.int64)
    check_array(first, where, "cell_first", shape=(first.size,), dtype=np.int64)
    inner, cells = child[child >= 0], -1 - child[child < 0] if nodes else np.zeros(1, int)
    below = np.all((child < 0) | (child > np.arange(nodes)[:, None]))
    numbered = np.array_equal(np.sort(inner), np.arange(1, nodes)) and np.array_equal(np.sort(cells), range(nodes + 1))
    if not below or not numbered:
        raise damaged(where, f"a tree of {nodes} nodes and {nodes + 1} cells in cell_child", "none")
    if len(first) < 2 or first[0] != 0 or first[-1] != nodes + 1 or np.any(np.diff(first) <= 0):
        raise damaged(where, f"partitions of {nodes + 1} cells in cell_first", shown(first.tolist()))


# --- What tasks read for themselves ---


def check_edges(edges, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` where the rows of cells do not begin at `edges` (cells + 1,)."""
    check_array(edges, where, "edges", shape=(cells + 1,), dtype=np.int64)
    _check_ascending(edges, rows, where, "edges")


def check_halo(blob, cells, rows, where: str) -> None:
    """Raise `ModelDamaged` where a blob is not that of `Halo`: offsets (cells + 1,), then rows."""
    if not blob.size and blob.ndim == 1:
        return
    check_array(blob, where, "a halo", shape=(blob.size,), dtype=np.int64)
    if len(blob) <= cells:
        raise damaged(where, f"{cells + 1} offsets of a halo", f"{len(blob)}")
    _check_ascending(blob[: cells + 1], len(blob) - cells - 1, where, "offsets of a halo")
    found = blob[cells + 1 :]
    if len(found) and not 0 <= found.min() <= found.max() < rows:
        raise damaged(where, f"rows 0 to {rows - 1} in a halo", f"{found.min()} to {found.max()}")


def _check_ascending(numbers, last, where, name):
    if numbers[0] != 0 or numbers[-1] != last or np.any(np.diff(numbers) < 0):
        raise damaged(where, f"ascending numbers from 0 to {last} in {name}", shown(numbers.tolist()))


def check_halos(table, partitions, where: str) -> None:
    """Raise `ModelDamaged` where a table does not hold a hash for each partition, (partitions, 32)."""
    check_array(table, where, "halos", shape=(partitions, 32), dtype=np.uint8)
