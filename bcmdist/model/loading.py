"""Load models by reference, with a cache by content, and validate them: fields by type, arrays by shape, and numbers
that must agree.

Every load of a commit runs these checks. A change that is
consistent in itself (another eta) cannot be detected. A wrong factor of the query covariance can: each kind of shared
variables has a method `check`.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from bcmdist.data.cell_tree import CellTree
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import from_json
from bcmdist.errors import BcmdistError, DataDamaged
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.input_errors import load_input_errors
from bcmdist.model.kernels import Kernel, parse_kernel
from bcmdist.model.likelihoods import LIKELIHOODS, Likelihood, make_likelihood
from bcmdist.model.likelihoods.interface import CLASSES
from bcmdist.model.mean import MEAN_NAMES, Mean, mean_of_outputs
from bcmdist.model.model import (
    CELL_ARRAYS,
    COMMITTEE_ARRAYS,
    FIRST_KIND,
    FIRST_PRECISION,
    FIRST_RESIDUAL,
    KINDS,
    SCALING_ARRAYS,
    WARPING_ARRAY,
    Model,
)
from bcmdist.model.outputs import Outputs
from bcmdist.model.query_sets import QuerySets, StoredQuery, query_sets_from_arrays
from bcmdist.model.scaling import CONSTANT_SHARE, Scaling, scaling_from_array
from bcmdist.model.shared.interface import Arrays, Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.target_transform import TargetTransform
from bcmdist.model.warping import UNWARPED, WARPS, Log, Rank, Warping, warping_from_array
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.commits import BlobReference, Reference, load_record, open_store
from bcmdist.storage.fields import NotNegative, Number, Positive, damaged, decode, shown
from bcmdist.storage.residual_records import RESIDUAL_ARRAYS

Parametrised = TypeVar("Parametrised", Kernel, Likelihood)
Scale = Annotated[float, Meta(gt=2.3e-162, lt=1.34e154)]  # the square is positive and finite


class ModelFacts(msgspec.Struct):
    """The fields of a stored model (`Model.to_arrays`); further fields belong to the kind of shared variables."""

    kernel: str
    kernel_parameters: dict[str, list[Positive]]
    mean: str
    jitter: NotNegative
    likelihood: str
    likelihood_parameters: dict[str, list[Positive]]
    y_mean: Number
    y_scale: Scale
    x: str
    y: str
    transform: TargetTransform | None = None
    outputs: Outputs | None = None
    shared: str = FIRST_KIND
    residual: str = FIRST_RESIDUAL
    precision: str = FIRST_PRECISION
    classes: list[Number] | None = None
    columns: list[str] = []
    class_names: list[str] = []
    coding: Any = None
    input_errors: dict[str, Any] | None = None
    earlier: list[StoredQuery] = []


def sound_model(arrays: Arrays, facts: dict[str, Any], where: str) -> Model:
    """Restore the model of a commit from its arrays and facts (`Model.to_arrays`), after checking them.

    Raises
    ------
    ModelDamaged
    """
    stored: ModelFacts = decode(ModelFacts, facts, where)
    require_arrays(arrays, SCALING_ARRAYS, where)
    D = arrays["x_mean"].size
    classes = _classes(stored, where)
    kernel = _with_parameters(_kernel(stored.kernel, D, where), stored.kernel_parameters, "kernel_parameters", where)
    likelihood = make_likelihood(stored.likelihood, len(classes) if classes else None)
    if stored.outputs:
        likelihood = likelihood.for_outputs(len(stored.outputs))
    likelihood = _with_parameters(likelihood, stored.likelihood_parameters, "likelihood_parameters", where)
    schema = _schema(stored, D, where)
    outputs = _outputs(stored, schema, D, where)
    input_errors = None if stored.input_errors is None else load_input_errors(stored.input_errors, D, where)
    kind = KINDS[stored.shared]
    kind.check_arrays(arrays, facts, D, where)
    check_array(arrays["x_mean"], where, "x_mean", shape=(D,))
    check_array(arrays["x_scale"], where, "x_scale", shape=(D,), positive=True)
    _check_inputs(arrays["x_mean"], arrays["x_scale"], where)
    shared = kind.from_arrays(arrays, facts, kernel, _mean(stored, where), stored.residual)
    with np.errstate(all="ignore"):
        shared.check(where)
    return Model(
        Scaling(
            arrays["x_mean"],
            arrays["x_scale"],
            stored.y_mean,
            stored.y_scale,
            _warping(arrays, D, where),
            stored.transform,
            outputs,
        ),
        shared,
        likelihood,
        stored.kernel,
        stored.x,
        stored.y,
        classes,
        _cell_tree(arrays, D, where) if CELL_ARRAYS[0] in arrays else None,
        schema,
        stored.precision,
        input_errors,
        _earlier(arrays, stored, shared, where),
    )


def _earlier(arrays: Arrays, stored: ModelFacts, shared: Shared, where: str) -> QuerySets:
    if not stored.earlier:
        return QuerySets()
    if not isinstance(shared, Query):
        raise damaged(where, "no earlier query sets of shared variables of this kind", shown(stored.shared))
    return query_sets_from_arrays(arrays, stored.earlier, shared, where)


def _kernel(expression: str, inputs: int, where: str) -> Kernel:
    try:
        return parse_kernel(expression, inputs=inputs)
    except BcmdistError as error:
        raise damaged(where, "the name of a kernel as kernel", shown(expression)) from error


def _mean(stored: ModelFacts, where: str) -> Mean:
    """Return the prior mean, after checking that it is that of the outputs, if there are several."""
    columns = stored.outputs.columns if stored.outputs else ()
    allowed = {mean_of_outputs(name, columns): name for name in MEAN_NAMES}
    if stored.mean not in allowed:
        raise damaged(where, f"one of {', '.join(allowed)} as mean", shown(stored.mean))
    return Mean(stored.mean)


def _outputs(stored: ModelFacts, schema: Schema, inputs: int, where: str) -> Outputs | None:
    """Return the scaling of several outputs, after checking that they are the levels of a column."""
    found = stored.outputs
    if found is None:
        return None
    alike = len(found.columns) == len(found.mean) == len(found.scale) == len(found.training_mean) > 1
    names = [schema.columns[k] for k in found.columns if k < len(schema.columns)]
    if not alike or schema.output is None or names != list(schema.output_inputs):
        raise damaged(where, "the one-hot inputs of a column, with a mean and a scale each, as outputs", shown(found))
    return found


def _with_parameters(made: Parametrised, values: Mapping[str, Sequence[float]], field: str, where: str) -> Parametrised:
    """Return a kernel or likelihood with its stored parameters, after checking their names and lengths."""
    own, found = ({n: len(value) for n, value in some.items()} for some in (made.parameters, values))
    if own != found:
        raise damaged(where, f"numbers of {own} as {field}", shown(found))
    return made.with_parameters({name: np.array(value, dtype=float) for name, value in values.items()})


def _classes(stored: ModelFacts, where: str) -> tuple[float, ...] | None:
    """Return the class labels as a tuple, or None, after checking that they suit the likelihood."""
    if stored.likelihood not in LIKELIHOODS:
        raise damaged(where, "the name of a known likelihood as likelihood", shown(stored.likelihood))
    classes, likelihood = stored.classes, LIKELIHOODS[stored.likelihood]
    ascending = classes is None or (len(classes) > 0 and all(a < b for a, b in itertools.pairwise(classes)))
    fitting = len(classes or (0, 1)) <= 2 or likelihood.per_class
    needed = classes is not None or not likelihood.per_class
    if not (ascending and fitting and needed) or (classes and likelihood.columns != CLASSES):
        raise damaged(where, f"the labels of {likelihood.name} as classes", shown(classes))
    return None if classes is None else tuple(classes)


def _schema(stored: ModelFacts, inputs: int, where: str) -> Schema:
    """Return the schema, after checking that all inputs have different names or none has, and the same for classes."""
    columns, names = stored.columns, stored.class_names
    if len(columns) not in (0, inputs) or len(set(columns)) < len(columns):
        raise damaged(where, f"{inputs} different names as columns", shown(columns))
    try:
        coding = None if stored.coding is None else from_json(stored.coding, where)
    except DataDamaged as error:
        raise damaged(where, "the JSON of a `coding.Coding` as coding", str(error)) from error
    if coding and coding.inputs != tuple(columns):
        raise damaged(where, f"a coding with the columns {shown(columns)} as coding", shown(stored.coding))
    numbers = stored.classes or (0, 1)
    if names and (LIKELIHOODS[stored.likelihood].columns != CLASSES or not set(numbers) <= set(range(len(names)))):
        raise damaged(where, f"names of the classes {shown(numbers)} as class_names", shown(names))
    return Schema(tuple(columns), tuple(names), coding)


def _warping(arrays: Arrays, inputs: int, where: str) -> Warping:
    """Return the warps of inputs: columns ascend in the table (`Warping.to_array`), and knots of a column in both."""
    if WARPING_ARRAY not in arrays:
        return UNWARPED
    table = arrays[WARPING_ARRAY]
    check_array(table, where, WARPING_ARRAY, shape=(table.size // 4, 4))
    column, kind, value, image = table.T
    if not np.isin(column, np.arange(inputs)).all() or not np.isin(kind, np.arange(len(WARPS))).all():
        raise damaged(where, f"warps of {inputs} columns in {WARPING_ARRAY}", "others")
    same = np.diff(column) == 0.0
    rising = (np.diff(value) > 0.0) & (np.diff(image) > 0.0) & (np.diff(kind) == 0.0)
    several = np.bincount(column.astype(int))[column.astype(int)] > 1
    ordered = np.all(np.where(same, rising, np.diff(column) > 0.0))
    positive = np.all(value[kind == WARPS.index(Log)] > 0.0)
    if not (ordered and positive and np.array_equal(several, kind == WARPS.index(Rank))):
        raise damaged(where, f"warps with ascending knots in {WARPING_ARRAY}", "others")
    return warping_from_array(table)


def _check_inputs(mean: FloatArray, scale: FloatArray, where: str) -> None:
    """Check that scales exceed rounding of the means; constant columns have scale 1 (`scaling.Moments`)."""
    far = np.flatnonzero((scale != 1.0) & (np.abs(mean) * CONSTANT_SHARE > 2.0 * scale))
    if len(far):
        found = f"{mean[far[0]]:g} with scale {scale[far[0]]:g} in column {far[0]}"
        raise damaged(where, "a scale above the rounding error of the mean of each column in x_mean", found)


def _cell_tree(arrays: Arrays, inputs: int, where: str) -> CellTree:
    """Return the tree of cells, after checking that it is a binary tree numbered as in `cell_tree.grow`: children after
    their node, cells from left to right."""
    require_arrays(arrays, CELL_ARRAYS, where)
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
    return CellTree(direction, threshold, child, first)


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling at a reference."""
    return scaling_from_array(open_store(reference.url).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = load_record(reference)
    names = sorted(set(record["arrays"]) - {*COMMITTEE_ARRAYS, *RESIDUAL_ARRAYS})
    hashes = tuple((name, record["arrays"][name]) for name in names)
    return _model(reference.url, hashes, json.dumps(record["facts"].get("model")))


@lru_cache(maxsize=2)
def _model(url: str, hashes: tuple[tuple[str, str], ...], facts: str) -> Model:
    """Model by content: commits with the same model share one copy in memory."""
    store = open_store(url)
    return sound_model({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts), url)
