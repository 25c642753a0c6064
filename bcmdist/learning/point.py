"""Points of the search for hyper-parameters: a kernel and a likelihood as one vector of log parameters."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.model.kernels import Kernel, parse_kernel, split_parameters
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters

AT_BOUND = 1e-3  # distance to a bound, in log units
NOISE = "noise_variance"
LITTLE_NOISE = 1e-3  # up to which more of it is tried where a climb begins; the variance of targets is 1


@dataclass(frozen=True)
class Point:
    """Hyper-parameters, with their objective and the constraints of the search on them."""

    name: str
    kernel: Kernel
    likelihood: Likelihood
    objective: float
    tied: bool = False
    """whether a search keeps the ratios of the lengthscales"""
    groups: tuple[int, ...] = ()
    """(D,) for each input the first input that shares its lengthscale; () if each input has its own"""
    fixed: tuple[str, ...] = ()
    """names of parameters that a search does not change"""


def expanded(point, inputs) -> "Point":
    """Return the same hyper-parameters with as many lengthscales as the kernel's expression defines."""
    kernel = parse_kernel(point.name, inputs=inputs)
    shapes = {n: v.shape for n, v in kernel.parameters.items()}
    values = {n: np.broadcast_to(v, shapes[n]).copy() for n, v in point.kernel.parameters.items()}
    return replace(point, kernel=kernel.with_parameters(values), tied=False)


def moves_of(point) -> np.ndarray:
    """Map of search steps to log parameters, (P, steps): each parameter moves alone, or lengthscales together."""
    names = _steps(point, tied=point.tied)
    steps = [step for step in dict.fromkeys(names) if step[0] not in point.fixed]
    return np.array([[float(name == step) for step in steps] for name in names])


def prior_shares(point) -> np.ndarray:
    """Weight of each log parameter in the prior, (P,): the inputs of a category share a weight of 1."""
    names = _steps(point)
    counts = Counter(names)
    return np.array([1.0 / counts[name] for name in names])


def _steps(point, *, tied=False):
    """Step that moves each log parameter, as (name, number); parameters that move together have the same step.

    tied : whether all lengthscales move together; otherwise those of a group do
    """
    columns = {f"kernel.{name}": c for name, c in point.kernel.lengthscale_columns(max(1, len(point.groups))).items()}

    def number(name, k):
        if name not in columns or not (tied or point.groups):
            return k
        return 0 if tied else point.groups[columns[name][k]]

    return [(name, number(name, k)) for name, values in parameters_of(point).items() for k in range(len(values))]


def theta_of(point) -> np.ndarray:
    """Log parameters of kernel and likelihood, (P,)."""
    return np.log(np.concatenate(list(parameters_of(point).values())))


def parameters_of(point) -> dict[str, np.ndarray]:
    """Parameters of kernel and likelihood by name, in the order of `theta_of`."""
    return named_parameters(point.kernel, point.likelihood)


def moved(point, theta) -> "Point":
    """Return the point at other log parameters (P,), not yet evaluated: its objective is -inf."""
    kernel_size = len(point.kernel.theta)
    kernel = point.kernel.with_theta(theta[:kernel_size])
    values = split_parameters(point.likelihood.parameters, np.exp(theta[kernel_size:]))
    return replace(point, kernel=kernel, likelihood=point.likelihood.with_parameters(values), objective=-math.inf)


def noisier(point) -> "Point | None":
    """Return the point with ten times the noise, not yet evaluated; None if its noise is more than `LITTLE_NOISE`."""
    values = point.likelihood.parameters.get(NOISE)
    if values is None or f"likelihood.{NOISE}" in point.fixed or np.max(values) > LITTLE_NOISE:
        return None
    likelihood = point.likelihood.with_parameters(dict(point.likelihood.parameters) | {NOISE: 10.0 * values})
    return replace(point, likelihood=likelihood, objective=-math.inf)


def prior_center(point, inputs) -> np.ndarray:
    """Log default parameters, the centre of the prior: variance 1, lengthscale sqrt(D), the likelihood's defaults;
    D inputs of its own in a kernel on some columns."""
    kernel = parse_kernel(point.name, inputs=inputs).parameters
    likelihood = point.likelihood.default(point.likelihood.processes).parameters
    values = [kernel[n][: len(v)] for n, v in point.kernel.parameters.items()]
    values += [np.broadcast_to(likelihood[n], len(v)) for n, v in point.likelihood.parameters.items()]
    return np.log(np.concatenate(values))


def bounds_of(point) -> np.ndarray:
    """Lower and upper bounds of the parameters, (P, 2)."""
    own = [(point.kernel.bounds[name], len(values)) for name, values in point.kernel.parameters.items()]
    own += [(point.likelihood.bounds[name], len(values)) for name, values in point.likelihood.parameters.items()]
    return np.concatenate([np.tile(bounds, (size, 1)) for bounds, size in own])


def at_bounds(point) -> list[str]:
    """Return the names of the parameters at a bound, with an index for vectors."""
    names = [f"{n}[{k}]" if len(v) > 1 else n for n, v in parameters_of(point).items() for k in range(len(v))]
    gaps = np.abs(np.log(bounds_of(point)) - theta_of(point)[:, None]).min(axis=1)
    return [name for name, gap in zip(names, gaps, strict=True) if gap < AT_BOUND]
