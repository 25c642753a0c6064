"""The predictions of a committee as an ONNX graph, which runs where neither Python nor bcmdist is.

    mean = b(x)' m,   variance = var(f | v) + |F^-1 b(x)|^2,   F F' = Lambda

of whitened columns b at query points (`bcmdist.prediction.latent`); noise, and what rows left out have said of the
scale and shape of errors, for new observations (`bcmdist.prediction.observation`). All in double precision.
"""

from pathlib import Path
from typing import cast

import numpy as np

from bcmdist import __version__, linalg
from bcmdist.api.interop.covariances import design, diagonal
from bcmdist.api.interop.graph import Graph, Value
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.observations import unweighted
from bcmdist.errors import DataExists, InvalidOption
from bcmdist.model.shared.query import Query
from bcmdist.prediction.errors.heteroscedasticity import FINITE, LARGEST_LOG, Scale
from bcmdist.prediction.fitted import Fitted
from bcmdist.prediction.observation import HIGH, LOW
from bcmdist.prediction.predictors import chosen_method
from bcmdist.runtime.threads import one_thread

COMMITTEE = "committee"
NOTHING = "none"  # the residual of which nothing is left


@one_thread()
def to_onnx(snapshot: Snapshot, path, *, method: str | None = None) -> tuple[str, ...]:
    """Write the predictions of a committee about query points to a new file; the names of its outputs.

    Input `X`, (n, D) of doubles in original units. Outputs, (n,): `mean` and `std` of the latent f; where noise is
    normal also `observation_std`, `lower95` and `upper95` of new observations, whose mean is that of f. Columns,
    target, kernel and likelihood are properties of the file.

    Raises
    ------
    DataExists, MissingExtra
    InvalidOption
        The model shares something else than values at query points, has several latent processes or another method
        than "committee", or a kernel of which no graph is known.
    """
    _refuse(snapshot, chosen_method(snapshot, method))
    fitted, graph = Fitted.of_snapshot(snapshot), Graph(snapshot.model.inputs)
    outputs = _outputs(fitted, graph)
    text = graph.model(outputs, _facts(snapshot.model), ("bcmdist", __version__))
    try:
        with open(path, "xb") as file:
            file.write(text)
    except FileExistsError as error:
        raise DataExists(f"{Path(path)}: expected a new file, found one; choose another name") from error
    return tuple(outputs)


def _refuse(snapshot, method):
    model, likelihood = snapshot.model, snapshot.model.likelihood
    if method != COMMITTEE:
        raise InvalidOption(
            f"to_onnx: expected the method {COMMITTEE}, got {method}, which reads rows of the data; "
            f"give method={COMMITTEE!r} for predictions without local detail"
        )
    if model.shared.kind != Query.kind:
        raise InvalidOption(
            f"to_onnx: expected values at query points as shared variables (the experts bcm, fitc, sor and rrgp_star), "
            f"got {model.shared.kind}; fit with one of these"
        )
    if likelihood.processes != 1:
        raise InvalidOption(
            f"to_onnx: expected a likelihood of one latent function, got {likelihood.name} with "
            f"{likelihood.processes}; fit numbers, counts, lifetimes or two classes"
        )


def _facts(model) -> dict[str, str]:
    named = {"columns": ",".join(model.schema.columns), "target": model.y_name}
    return named | {"kernel": model.kernel_name, "likelihood": model.likelihood.name}


def _outputs(fitted: Fitted, graph: Graph) -> dict[str, Value]:
    """Predicted quantities in original units, by name, (n,) each."""
    model, likelihood = fitted.model, fitted.model.likelihood
    scaling, units = model.scaling, likelihood.units
    X = (graph.rows - scaling.x_mean) / scaling.x_scale
    mean, variance = _latent(fitted, X)
    length, at_zero = units.latent_length(scaling.y_scale), units.latent(0.0, scaling.y_mean, scaling.y_scale)
    told = {"mean": mean * length + at_zero, "std": variance.sqrt() * length}
    if not likelihood.normal:
        return told
    said = variance + likelihood.noise(unweighted(np.zeros(1)))
    if fitted.spread.scale is not None:
        said = said * _widening(fitted.spread.scale, X, said)
    sd, shape = said.sqrt() * length, fitted.spread.shape
    ends = {"lower95": LOW, "upper95": HIGH}
    return told | {"observation_std": sd} | {n: told["mean"] + sd * shape.quantile(q) for n, q in ends.items()}


def _latent(fitted: Fitted, X: Value) -> tuple[Value, Value]:
    """Mean and variance of f at scaled inputs, (n,) each."""
    shared, belief = cast(Query, fitted.model.shared), fitted.belief
    B, own = design(shared, X)
    A = B @ linalg.solve_lower(belief.factor, np.eye(len(belief.mean))).T
    known = (A * A).sum_of_rows()
    if shared.residual == NOTHING:
        return B @ belief.mean, known
    left = (diagonal(shared.kernel, X) - (own * own).sum_of_rows()).clip(0.0, np.inf)
    return B @ belief.mean, left + known


def _widening(scale: Scale, X: Value, said: Value) -> Value:
    """By which variances of observations are multiplied, (n,); see `bcmdist.prediction.errors.heteroscedasticity`."""
    places = X.beside(said.clip(*FINITE).log().columns())
    B, _ = design(scale.shared, places)
    return (B @ scale.mean - scale.level).clip(-LARGEST_LOG, LARGEST_LOG).exp()
