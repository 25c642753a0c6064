"""Validate the stored form of a model: fields by type, arrays by shape, and numbers that must agree.

Every load of a commit runs these checks; `storage.fields` describes the checks of single fields. A change that is
consistent in itself (another eta) cannot be detected. A wrong factor of the query covariance can: each kind of shared
variables has a method `check`.
"""

import itertools

import numpy as np

from bcmdist.data.tables.coding import from_json, is_coding
from bcmdist.errors import BcmdistError
from bcmdist.model.input_errors import check_input_errors
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import LIKELIHOODS, make_likelihood
from bcmdist.model.mean import MEAN_NAMES
from bcmdist.model.model import CELL_ARRAYS, SCALING_ARRAYS, Model, from_arrays
from bcmdist.model.scaling import CONSTANT_SHARE
from bcmdist.model.shared.kinds import FIRST_KIND, KINDS
from bcmdist.storage.fields import check_array, check_fields, damaged
from bcmdist.storage.kinds import (
    NAMED,
    NOT_NEGATIVE,
    NUMBER,
    POSITIVE,
    TEXT,
    Kind,
    each,
    every,
    is_number,
    maybe,
    one_of,
    shown,
)

SCALE = Kind(
    "a positive number whose square is one",
    lambda value: is_number(value) and value > 0 and 0 < float(value) * float(value) < np.inf,
)
LIKELIHOOD = Kind(
    "the name of a likelihood that is known here", lambda value: isinstance(value, str) and value in LIKELIHOODS
)
CODING = Kind("how columns were coded, as `coding.Coding` writes it", is_coding)
MODEL = {
    "kernel": TEXT,
    "kernel_parameters": each(every(POSITIVE)),
    "mean": one_of(MEAN_NAMES),
    "jitter": NOT_NEGATIVE,
    "shared": TEXT.perhaps,
    "residual": TEXT.perhaps,
    "precision": TEXT.perhaps,
    "likelihood": LIKELIHOOD,
    "likelihood_parameters": each(every(POSITIVE)),
    "y_mean": NUMBER,
    "y_scale": SCALE,
    "x": TEXT,
    "y": TEXT,
    "classes": maybe(every(NUMBER)),
    "columns": every(TEXT).perhaps,
    "class_names": every(TEXT).perhaps,
    "coding": CODING.perhaps,
    "input_errors": NAMED.perhaps,
}


def sound_model(arrays, facts, where: str) -> Model:
    """Restore the model of a commit from its arrays and facts (`Model.to_arrays`), after checking them.

    Raises
    ------
    ModelDamaged
    """
    check_fields(facts, MODEL, where)
    for name in SCALING_ARRAYS:
        if name not in arrays:
            raise damaged(where, f"an array {name}", "none")
    D = arrays["x_mean"].size
    _check_parts(facts, D, where)
    KINDS[facts.get("shared", FIRST_KIND)].check_arrays(arrays, facts, D, where)
    check_array(arrays["x_mean"], where, "x_mean", shape=(D,))
    check_array(arrays["x_scale"], where, "x_scale", shape=(D,), positive=True)
    _check_inputs(arrays["x_mean"], arrays["x_scale"], where)
    if CELL_ARRAYS[0] in arrays:
        _check_tree(arrays, D, where)
    model = from_arrays(arrays, facts)
    with np.errstate(all="ignore"):
        model.shared.check(where)
    return model


def _check_parts(facts, inputs, where):
    """Check names and lengths of the kernel and likelihood parameters, and that classes exist where they are needed."""
    try:
        kernel = parse_kernel(facts["kernel"], inputs=inputs)
    except BcmdistError as error:
        raise damaged(where, "the name of a kernel as kernel", shown(facts["kernel"])) from error
    classes, likelihood = facts.get("classes"), LIKELIHOODS[facts["likelihood"]]
    ascending = classes is None or (len(classes) > 0 and all(a < b for a, b in itertools.pairwise(classes)))
    fitting = len(classes or (0, 1)) <= 2 or likelihood.per_class
    needed = classes is not None or not likelihood.per_class
    if not (ascending and fitting and needed) or (classes and not likelihood.categorical):
        raise damaged(where, f"the labels of {likelihood.name} as classes", shown(classes))
    _check_names(facts, inputs, where)
    if "input_errors" in facts:
        check_input_errors(facts["input_errors"], inputs, where)
    likely = make_likelihood(likelihood.name, classes and len(classes))
    for parameters, field in (
        (kernel.parameters, "kernel_parameters"),
        (likely.parameters, "likelihood_parameters"),
    ):
        own = {n: len(value) for n, value in parameters.items()}
        found = {n: len(value) for n, value in facts[field].items()}
        if own != found:
            raise damaged(where, f"numbers of {own} as {field}", shown(found))


def _check_names(facts, inputs, where):
    """Check that all inputs have different names or none has, and that all classes have names or none has."""
    columns, names = facts.get("columns", []), facts.get("class_names", [])
    if len(columns) not in (0, inputs) or len(set(columns)) < len(columns):
        raise damaged(where, f"{inputs} different names as columns", shown(columns))
    coding = facts.get("coding")
    if coding and from_json(coding, where).inputs != tuple(columns):
        raise damaged(where, f"the code of columns that become {shown(columns)} as coding", shown(coding))
    numbers = facts.get("classes") or (0, 1)
    if names and (not LIKELIHOODS[facts["likelihood"]].categorical or not set(numbers) <= set(range(len(names)))):
        raise damaged(where, f"names of the classes {shown(numbers)} as class_names", shown(names))


def _check_inputs(mean, scale, where):
    """Check that scales exceed rounding of the means; constant columns have scale 1 (`scaling.Moments`)."""
    far = np.flatnonzero((scale != 1.0) & (np.abs(mean) * CONSTANT_SHARE > 2.0 * scale))
    if len(far):
        found = f"{mean[far[0]]:g} with scale {scale[far[0]]:g} in column {far[0]}"
        raise damaged(where, "columns of X that vary beside their means in x_mean", found)


def _check_tree(arrays, inputs, where):
    """Check for a binary tree numbered as in `cell_tree.grow`: children after their node, cells from left to right."""
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
