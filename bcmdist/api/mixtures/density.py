"""The log posterior density of hyper-parameters that chains sample, in the coordinates of the paper.

Williams & Rasmussen (1996), section 3.2: logs of v_0, v_1, a_0, a_1 and w_l = 1 / lengthscale_l^2, for scaled inputs
and targets. Step size, starting points and prior refer to these coordinates, not to lengthscales.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.data.partition import Partition
from bcmdist.errors import InvalidOption
from bcmdist.experts.hmc import LogDensity, with_normal_prior
from bcmdist.learning.evidence.objectives import CommitteeObjective, LocalObjective
from bcmdist.learning.evidence_refinement import IndependentRowsObjective
from bcmdist.learning.point import Point, moves_of
from bcmdist.learning.search import Objective
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels import Kernel, split_parameters
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named
from bcmdist.model.scaling import scaling_to_array
from bcmdist.model.shared.query import Query
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference

# The normal prior of every log parameter, in the coordinates of the paper.
PRIOR_MEAN, PRIOR_SD = -3.0, 3.0
# Starting points: the first chain starts at the paper's values, others at normal deviates of this size about them.
START_NOISE_AND_W, START_OTHERS = -2.0, 0.0
START_DEVIATION = 1.0
# Least relative jitter of the query covariance at all samples: enough for every lengthscale, so that none is excluded.
LEAST_JITTER = 1e-10
# The density is zero beyond this absolute log parameter: ten prior deviations, where exp can still be squared.
LARGEST_LOG = 30.0

MakeObjective = Callable[[GBCM, list[Partition], Runtime], Objective]
"""Function from a prepared committee, its partitions and a runtime to an objective of kernel and likelihood."""


class Coordinates:
    """The paper's log parameters of a kernel and a likelihood: log w = -2 log lengthscale, others unchanged.

    `groups` (D,): for each input, the first input with which it shares a lengthscale; each group is one parameter.
    """

    def __init__(self, kernel: Kernel, likelihood: Likelihood, groups: tuple[int, ...] = ()) -> None:
        self.kernel, self.likelihood = kernel, likelihood
        moves = moves_of(Point("", kernel, likelihood, -np.inf, groups=groups))
        self.which, self.first = moves.argmax(axis=1), moves.argmax(axis=0)
        named, lengthscales = named_parameters(kernel, likelihood), {f"kernel.{n}" for n in kernel.lengthscales}
        every = [(n, k if len(v) > 1 else None) for n, v in named.items() for k in range(len(v))]
        every = [every[k] for k in self.first]
        self.slope = np.array([-2.0 if n in lengthscales else 1.0 for n, _ in every])
        self.names = [n.replace("lengthscale", "w") + ("" if k is None else f"[{k}]") for n, k in every]

    def at(self, phi: FloatArray) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood at the coordinates phi (P,)."""
        named = named_parameters(self.kernel, self.likelihood)
        flat = np.exp(phi / self.slope)[self.which]
        return with_named(self.kernel, self.likelihood, split_parameters(named, flat))

    def _of_model(self) -> FloatArray:
        """Coordinates (P,) of this kernel and likelihood."""
        every = np.log(np.concatenate(list(named_parameters(self.kernel, self.likelihood).values())))
        coordinates: FloatArray = every[self.first] * self.slope
        return coordinates

    def log_density(self, objective: Objective) -> LogDensity:
        """Return the log posterior density with gradient, from an objective with its gradient in log parameters."""

        def log_likelihood(phi: FloatArray) -> tuple[float, FloatArray]:
            if np.abs(phi).max() > LARGEST_LOG:
                return -np.inf, np.zeros_like(phi)
            value, gradient = objective(*self.at(phi))
            return value, np.bincount(self.which, gradient) / self.slope

        return with_normal_prior(log_likelihood, mean=PRIOR_MEAN, sd=PRIOR_SD)

    def start(self, chain: int, *, learned: bool = False) -> np.ndarray:
        """Return the starting point of a chain, (P,): the paper's values for chain 0, random ones about them else.

        learned : start from this kernel and likelihood in place of the paper's values
        """
        # a_1 scales outputs, as v_0 does, although the linear kernel has a lengthscale here.
        w = (self.slope < 0) & ["linear" not in name for name in self.names]
        noise = [name == "likelihood.noise_variance" for name in self.names]
        place = self._of_model() if learned else np.where(w | noise, START_NOISE_AND_W, START_OTHERS)
        return place + START_DEVIATION * (chain > 0) * np.random.default_rng([chain, 1]).standard_normal(len(place))


def default_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return `committee_objective` for a Gaussian likelihood with several partitions, else `local_objective`.

    With independent rows given the query values (fitc, sor), that is `independent_rows_objective`.

    Raises
    ------
    InvalidOption
        Rows are independent, and the noise is not Gaussian.
    """
    likelihood, residual = prepared.model.likelihood, prepared.model.shared.residual
    gaussian = likelihood.exact and likelihood.processes == 1
    if residual != "block":
        if not gaussian:
            raise InvalidOption(
                f"hmc: expected a gaussian likelihood with the residual {residual}, got {likelihood.name}; leave out "
                "--expert"
            )
        return independent_rows_objective(prepared, parts, runtime)
    return (committee_objective if gaussian and len(parts) > 1 else local_objective)(prepared, parts, runtime)


def local_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return the objective that sums the evidences of single partitions, as if these were independent."""
    model = prepared.model
    return LocalObjective(
        runtime, parts, scaling=_scaling(prepared), mean=model.shared.mean.name, classes=model.classes
    )


def committee_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return the objective that is the evidence of the committee of all partitions, with the prepared query points."""
    return CommitteeObjective(runtime, parts, **_of_committee(prepared))


def independent_rows_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """As `committee_objective`, of a committee whose rows are independent given the query values."""
    how = _of_committee(prepared)
    return IndependentRowsObjective(runtime, parts, residual=prepared.model.shared.residual, **how)


def _of_committee(prepared: GBCM) -> dict[str, Any]:
    query = cast(Query, prepared.model.shared)  # the experts that are sampled share values at query points
    return {
        "scaling": _scaling(prepared),
        "mean": query.mean.name,
        "points": query.points,
        "jitter": max(query.jitter_share, LEAST_JITTER),
        "store": prepared.snapshot.store,
        "classes": prepared.model.classes,
    }


def _scaling(prepared: GBCM) -> BlobReference:
    digests = prepared.store.put_arrays({"scaling": scaling_to_array(prepared.model.scaling)})
    return BlobReference(prepared.url, digests["scaling"])
