"""Models that are the same in original units, though they scale inputs and targets differently.

In the units of targets, f has the prior offset + length (g + h'w), where g ~ GP(0, k), w ~ N(0, I), and k and h are
functions of scaled inputs (`bcmdist.model.shared.query`). Two models are the same if offset, length^2 k and length h
agree at all inputs, and their likelihoods agree as densities of targets in original units. Then r L is a factor of
one's query covariance if L is a factor of the other's, with r the ratio of their lengths: whitened query values, and
so messages about them, are the same, but for the unit of the densities in their evidence.
"""

from dataclasses import replace
from typing import cast

import numpy as np

from bcmdist.data.observations import unweighted
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.model import Model
from bcmdist.model.query_sets import QuerySets
from bcmdist.model.shared.query import Query

# Largest difference of two quantities that are the same, relative to their size.
TOLERANCE = 1e-9
# Points at which priors are compared: query points of each model, and random ones. Arbitrary.
COMPARED_POINTS, RANDOM_POINTS = 1000, 50
# Targets and latents at which likelihoods are compared, in the units of one model.
COMPARED_TARGETS = np.linspace(-3.0, 3.0, 13)


def converted(model: Model, like: Model) -> Model | None:
    """A model with the scaling, kernel, mean and likelihood of another, which is the same in original units.

    Its shared variables are those of the former, in value and order. None where the two models differ.
    """
    if not (_comparable(model, like) and _same_prior(model, like) and _same_likelihood(model, like)):
        return None
    ratio = _unit(model)[1] / _unit(like)[1]

    def moved(query: Query) -> Query:
        return replace(
            query,
            points=moved_inputs(query.points, model, like),
            kernel=like.shared.kernel,
            factor=ratio * query.factor,
            jitter=ratio**2 * query.jitter,
        )

    earlier = QuerySets(replace(one, stored=one.stored and moved(one.stored)) for one in model.earlier)
    prior = replace(model, scaling=like.scaling, likelihood=like.likelihood, kernel_name=like.kernel_name)
    return replace(prior, shared=moved(cast(Query, model.shared)), earlier=earlier)


def moved_inputs(X: FloatArray, model: Model, like: Model) -> FloatArray:
    """Inputs (n, D) in the scaled units of `model`, in those of `like`; both warp inputs alike."""
    a, b = model.scaling, like.scaling
    original = a.x_mean + a.x_scale * X
    levels = model.shared.kernel.level_columns(model.inputs)
    original[:, levels] = np.round(original[:, levels], 9)  # they are compared for equality
    same = (a.x_mean == b.x_mean) & (a.x_scale == b.x_scale)
    return np.where(same, X, (original - b.x_mean) / b.x_scale)


def log_length(model: Model) -> float:
    """Log of the length of a unit of scaled targets, in original units; 0 where each output has its own."""
    if model.scaling.outputs is not None:
        return 0.0
    return -float(model.scaling.log_jacobian(model.likelihood.units))


def differences(one: Model, other: Model) -> list[str]:
    """What tells two models apart that differ in scaling or parameters, in original units and in words.

    At least one text; empty where the models are not of the same form, so that they cannot be compared.
    """
    if not _comparable(one, other):
        return []
    names = KernelColumns(one.inputs, one.schema).names
    found, (a, r), (b, s) = list[str](), _unit(one), _unit(other)
    if abs(a - b) > TOLERANCE * min(r, s):
        found.append(f"origin of targets {_pair(a, b)}")
    if one.shared.mean.weights(one.inputs) and abs(r - s) > TOLERANCE * r:
        found.append(f"unit of the weights of the prior mean {_pair(r, s)}")
    kernels = one.shared.kernel, other.shared.kernel
    columns = kernels[0].lengthscale_columns(one.inputs)
    for name, values in kernels[0].parameters.items():
        others = kernels[1].parameters.get(name, values)
        for k, (value, second) in enumerate(zip(values, others, strict=False)):
            for column in _columns_of(columns.get(name), k, len(values)):
                units, where = (r**2, s**2) if name in kernels[0].variances else (1.0, 1.0), ""
                if column is not None:
                    units, where = (one.scaling.x_scale[column], other.scaling.x_scale[column]), f" of {names[column]}"
                found += _texts(f"kernel: {name}{where}", value * units[0], second * units[1])
    for name, values in one.likelihood.parameters.items():
        units = (r**2, s**2) if name.endswith("variance") else (1.0, 1.0)
        for value, second in zip(values, other.likelihood.parameters.get(name, values), strict=False):
            found += _texts(f"likelihood: {name}", value * units[0], second * units[1])
    return [f"{text} (original units)" for text in found] or ["the prior covariance of f"]


def _columns_of(columns: IntArray | None, k: int, count: int) -> list[int | None]:
    """Columns that entry `k` of `count` entries of a parameter divides; [None] for one that is no lengthscale."""
    if columns is None:
        return [None]
    return list(columns) if count == 1 else [columns[k]]


def _texts(what: str, value: float, second: float) -> list[str]:
    return [] if np.isclose(value, second, rtol=TOLERANCE, atol=0.0) else [f"{what} {_pair(value, second)}"]


def _pair(a: float, b: float) -> str:
    digits = next((k for k in range(3, 17) if f"{a:.{k}g}" != f"{b:.{k}g}"), 17)
    return f"{a:.{digits}g} and {b:.{digits}g}"


def _comparable(one: Model, other: Model) -> bool:
    """Whether two models are of the same form: shared values at query points, likelihood, transforms and warps."""
    return all(isinstance(model.shared, Query) for model in (one, other)) and _form(one) == _form(other)


def _form(model: Model) -> tuple[object, ...]:
    scaling, transform = model.scaling, model.scaling.transform
    changed = transform and (transform.power, transform.floor), scaling.warping.to_array().tolist(), scaling.outputs
    return (model.inputs, model.likelihood.name, model.shared.mean, *changed)


def _unit(model: Model) -> tuple[float, float]:
    """Offset and length of scaled f in the unit of targets, or of their logarithm."""
    units, scaling = model.likelihood.units, model.scaling
    if scaling.outputs is not None:  # each output has its own
        return 0.0, 1.0
    offset = units.latent(np.zeros(()), scaling.y_mean, scaling.y_scale)
    return float(offset), float(units.latent_length(scaling.y_scale))


def _same_prior(model: Model, like: Model) -> bool:
    (a, r), (b, s) = _unit(model), _unit(like)
    queries = (cast(Query, one.shared) for one in (model, like))
    own, other = (query.points[:: -(-len(query.points) // COMPARED_POINTS)] for query in queries)
    X = np.vstack([moved_inputs(own, model, like), other])
    if model.scaling.outputs is None:  # else rows name their output
        X = np.vstack([X, np.random.default_rng(0).standard_normal((RANDOM_POINTS, like.inputs))])
    Z = moved_inputs(X, like, model)
    one, two = (length**2 * m.shared.kernel.cross(x, x) for m, length, x in ((model, r, Z), (like, s, X)))
    sd = np.sqrt(np.diagonal(two))
    means = r * model.shared.mean.design(Z), s * like.shared.mean.design(X)
    near = np.abs(one - two) <= TOLERANCE * np.outer(sd, sd)
    return bool(abs(a - b) <= TOLERANCE * s and near.all() and np.allclose(*means, rtol=TOLERANCE, atol=TOLERANCE * s))


def _same_likelihood(model: Model, like: Model) -> bool:
    r, s = (np.exp(log_length(one)) for one in (model, like))
    if np.isclose(r, s, rtol=TOLERANCE, atol=0.0):
        ours, theirs = model.likelihood.parameters, like.likelihood.parameters
        return all(np.allclose(ours[n], theirs[n], rtol=TOLERANCE, atol=0.0) for n in theirs)
    y, f = (values.ravel() for values in np.meshgrid(COMPARED_TARGETS, COMPARED_TARGETS))
    one = model.likelihood.log_density(unweighted(y * s / r), f * s / r) - np.log(r)
    return np.allclose(one, like.likelihood.log_density(unweighted(y), f) - np.log(s), rtol=TOLERANCE, atol=TOLERANCE)
