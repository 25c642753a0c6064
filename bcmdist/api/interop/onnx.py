"""Export the predictions of a committee as an ONNX graph, which runs without Python and bcmdist.

    mean = b(x)' m,   variance = var(f | v) + |F^-1 b(x)|^2,   F F' = Lambda

with b the whitened covariances with the query points (`bcmdist.prediction.latent`), m the posterior mean and Lambda
the posterior precision of the shared variables v. Predictions of new observations add the noise, and the scale and
shape of errors measured on held-out rows (`bcmdist.prediction.observation`).

Squared distances are sums of squared differences, which lose no digits near coincident points.
"""

from functools import reduce, singledispatch
from operator import add, mul
from pathlib import Path
from typing import Any, cast

import numpy as np

from bcmdist import __version__, linalg
from bcmdist.api.interop.onnx_gaps import gap_factors
from bcmdist.api.interop.onnx_graph import Graph, Value
from bcmdist.api.interop.onnx_warping import warped
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.data.observations import unweighted
from bcmdist.errors import DataExists, InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels import Kernel, basis, columns, combined, levels, stationary
from bcmdist.model.mean import WEIGHT_SD, Mean
from bcmdist.model.model import Model
from bcmdist.model.shared.query import Query
from bcmdist.prediction.errors.heteroscedasticity import FINITE, LARGEST_LOG, VaryingScale
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.observation import HIGH, LOW
from bcmdist.prediction.predictive_model import chosen_method
from bcmdist.runtime.threads import one_thread


@singledispatch
def cross(kernel: Kernel, X: Value, Z: FloatArray) -> Value:
    """Covariances k(x_i, z_j) of the rows of X (n, D) and of an array Z (m, D): (n, m).

    Raises
    ------
    InvalidOption
        The export does not support this kernel.
    """
    raise InvalidOption(
        "to_onnx: expected a kernel of se, matern12, matern32, matern52, rq, linear, poly2, poly3, constant, white, "
        f"periodic and one-hot category, sums and products of these, got {kernel.expression}; fit with another --kernel"
    )


@cross.register
def _(kernel: combined.Sum, X: Value, Z: FloatArray) -> Value:
    return reduce(add, [cross(part, X, Z) for part in kernel.parts])


@cross.register
def _(kernel: columns.OnColumns, X: Value, Z: FloatArray) -> Value:
    own = list(kernel.columns)
    return cross(kernel.kernel, X.column(own), Z[:, own])


@cross.register
def _(kernel: levels.OneHot, X: Value, Z: FloatArray) -> Value:
    return (_distance(X, Z) * 0.5 * np.log(kernel.correlation)).exp() * kernel.variance


@cross.register
def _(kernel: levels.White, X: Value, Z: FloatArray) -> Value:
    equal = X.graph.apply("Equal", _distance(X, Z), np.zeros(()))
    return X.graph.apply("Where", equal, kernel.variance, np.zeros(1))


@cross.register
def _(kernel: levels.Periodic, X: Value, Z: FloatArray) -> Value:
    sines = X.graph.apply("Sin", (X - Z[:, 0][None, :]) * (np.pi / kernel.period))
    return (sines * sines * (-2.0 / kernel.angle**2)).exp() * kernel.variance


@cross.register
def _(kernel: combined.Product, X: Value, Z: FloatArray) -> Value:
    return reduce(mul, [cross(part, X, Z) for part in kernel.parts])


@cross.register
def _(kernel: stationary.SquaredExponential, X: Value, Z: FloatArray) -> Value:
    return (_squared_distance(kernel, X, Z) * -0.5).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern12, X: Value, Z: FloatArray) -> Value:
    return (_squared_distance(kernel, X, Z).sqrt() * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern32, X: Value, Z: FloatArray) -> Value:
    a = (_squared_distance(kernel, X, Z) * 3.0).sqrt()
    return (a + 1.0) * (a * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.Matern52, X: Value, Z: FloatArray) -> Value:
    a = (_squared_distance(kernel, X, Z) * 5.0).sqrt()
    return (a * a / 3.0 + a + 1.0) * (a * -1.0).exp() * kernel.variance


@cross.register
def _(kernel: stationary.RationalQuadratic, X: Value, Z: FloatArray) -> Value:
    u = _squared_distance(kernel, X, Z) / (2.0 * kernel.alpha)
    return ((u + 1.0).log() * -kernel.alpha).exp() * kernel.variance


@cross.register
def _(kernel: basis.Linear, X: Value, Z: FloatArray) -> Value:
    return _inner_products(kernel, X, Z)


@cross.register
def _(kernel: basis.Polynomial, X: Value, Z: FloatArray) -> Value:
    return reduce(mul, [_inner_products(kernel, X, Z) + 1.0] * kernel.degree) * kernel.variance


@cross.register
def _(kernel: basis.Constant, X: Value, Z: FloatArray) -> Value:
    return X @ np.zeros_like(Z.T) + kernel.variance


@singledispatch
def diagonal(kernel: Any, X: Value) -> Value:
    """Variances k(x_i, x_i) at the rows of X (n, D): (n,). Stationary kernels: the constant variance."""
    variances: Value = X.sum_of_rows() * 0.0 + kernel.variance
    return variances


@diagonal.register
def _(kernel: combined.Sum, X: Value) -> Value:
    return reduce(add, [diagonal(part, X) for part in kernel.parts])


@diagonal.register
def _(kernel: combined.Product, X: Value) -> Value:
    return reduce(mul, [diagonal(part, X) for part in kernel.parts])


@diagonal.register
def _(kernel: columns.OnColumns, X: Value) -> Value:
    return diagonal(kernel.kernel, X.column(list(kernel.columns)))


@diagonal.register
def _(kernel: basis.Linear, X: Value) -> Value:
    return _squared_length(kernel, X)


@diagonal.register
def _(kernel: basis.Polynomial, X: Value) -> Value:
    return reduce(mul, [_squared_length(kernel, X) + 1.0] * kernel.degree) * kernel.variance


def design(shared: Query, X: Value) -> tuple[Value, Value]:
    """Return the whitened design (n, S), and its columns without the prior mean, (n, Q): b_g = L^-1 k(X^q, x)."""
    whiten = linalg.solve_lower(shared.factor, np.eye(len(shared.points))).T
    own = cross(shared.kernel, X, shared.points) @ whiten
    mean = _mean(shared.mean, X)
    return (own if mean is None else own.concat_columns(mean)), own


def _mean(mean: Mean, X: Value) -> Value | None:
    """Return the basis of the prior mean times the prior standard deviation of its weights, (n, P); None if zero."""
    ones = (X.sum_of_rows() * 0.0 + WEIGHT_SD).columns()
    return {"zero": None, "constant": ones, "linear": ones.concat_columns(X * WEIGHT_SD)}[mean.name]


def _distance(X: Value, Z: FloatArray) -> Value:
    """Return sum_d (x_d - z_d)^2, (n, m): 0 between equal rows."""
    return reduce(add, [gap * gap for gap in (X.column([d]) - Z[:, d][None, :] for d in range(Z.shape[1]))])


def _squared_distance(kernel: stationary.Stationary | stationary.RationalQuadratic, X: Value, Z: FloatArray) -> Value:
    return _distance(X / kernel.lengthscale, Z / kernel.lengthscale)


def _inner_products(kernel: basis.Linear | basis.Polynomial, X: Value, Z: FloatArray) -> Value:
    return X / kernel.lengthscale @ (Z / kernel.lengthscale).T


def _squared_length(kernel: basis.Linear | basis.Polynomial, X: Value) -> Value:
    Xs = X / kernel.lengthscale
    return (Xs * Xs).sum_of_rows()


COMMITTEE = "committee"
NOTHING = "none"  # `Query.residual` where f is a function of the shared variables alone


@one_thread()
def to_onnx(snapshot: Snapshot, path: Location, *, method: str | None = None) -> tuple[str, ...]:
    """Write the predictions of a committee to a new ONNX file. Return the names of its outputs.

    Input: `X` (n, D), doubles in original units. Outputs, (n,): `mean` and `std` of the latent function; for normal
    noise of targets that are not transformed also `observation_std`, `lower95` and `upper95` of new observations, whose
    mean is `mean`. Names of columns and target, kernel and likelihood are stored as metadata of the file.

    Raises
    ------
    DataExists, MissingExtra
    InvalidOption
        The shared variables are not values at query points, there are several latent functions, the method is not
        "committee", or the export does not support the kernel.
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


def _refuse(snapshot: Snapshot, method: str) -> None:
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
    if model.outputs:
        raise InvalidOption(
            f"to_onnx: expected one output, got {len(model.outputs)}, each in a unit of its own; fit one output "
            "at a time"
        )
    if likelihood.processes != 1:
        raise InvalidOption(
            f"to_onnx: expected a likelihood of one latent function, got {likelihood.name} with "
            f"{likelihood.processes}; fit numbers, counts, lifetimes or two classes"
        )


def _facts(model: Model) -> dict[str, str]:
    named = {"columns": ",".join(model.schema.columns), "target": model.y_name}
    return named | {"kernel": model.kernel_name, "likelihood": model.likelihood.name}


def _outputs(fitted: Fitted, graph: Graph) -> dict[str, Value]:
    """Return the predicted quantities in original units, by name, (n,) each."""
    model, likelihood = fitted.model, fitted.model.likelihood
    scaling, units = model.scaling, likelihood.units
    X = (warped(graph.rows, scaling.warping) - scaling.x_mean) / scaling.x_scale
    mean, variance = _latent(fitted, X)
    length, at_zero = units.latent_length(scaling.y_scale), units.latent(np.zeros(()), scaling.y_mean, scaling.y_scale)
    outputs = {"mean": mean * length + at_zero, "std": variance.sqrt() * length}
    if not model.normal:
        return outputs
    predictive = variance + likelihood.noise(unweighted(np.zeros(1)))
    if fitted.error_distribution.scale is not None:
        predictive = predictive * _widening(fitted.error_distribution.scale, X, predictive)
    if fitted.error_distribution.gaps is not None:
        predictive = predictive * gap_factors(fitted.error_distribution.gaps, X)
    outputs["std"] = graph.rows.graph.apply("Min", variance, predictive).sqrt() * length
    sd, shape = predictive.sqrt() * length, fitted.error_distribution.shape
    ends = {"lower95": LOW, "upper95": HIGH}
    return outputs | {"observation_std": sd} | {n: outputs["mean"] + sd * shape.quantile(q) for n, q in ends.items()}


def _latent(fitted: Fitted, X: Value) -> tuple[Value, Value]:
    """Return mean and variance of f at scaled inputs, (n,) each."""
    shared, belief = cast(Query, fitted.model.shared), fitted.belief
    B, own = design(shared, X)
    A = B @ linalg.solve_lower(belief.factor, np.eye(len(belief.mean))).T
    explained = (A * A).sum_of_rows()
    if shared.residual == NOTHING:
        return B @ belief.mean, explained
    left = (diagonal(shared.kernel, X) - (own * own).sum_of_rows()).clip(0.0, np.inf)
    return B @ belief.mean, left + explained


def _widening(scale: VaryingScale, X: Value, variance: Value) -> Value:
    """Return the factors of observation variances, (n,); see `bcmdist.prediction.errors.heteroscedasticity`."""
    places = X.concat_columns(variance.clip(*FINITE).log().columns())
    B, _ = design(scale.shared, places.clip(scale.low, scale.high))
    return (B @ scale.mean - scale.level).clip(-LARGEST_LOG, LARGEST_LOG).exp()
