"""Log evidence of a committee with independent rows given v (fitc, sor), in hyper-parameters and query points.

Both gradients come from the same two rounds over the rows (`independent_rows_gradient`), in O(n Q^2). So the query
points, the pseudo-inputs of Snelson & Ghahramani (2006), and the hyper-parameters can be optimised jointly.
"""

import hashlib
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.errors import NotPositiveDefinite
from bcmdist.learning.evidence.committee_gradient import committee_gradient, points_gradient
from bcmdist.learning.evidence.committee_tasks import Trial, TrialGradients, TrialMessage
from bcmdist.learning.evidence.objectives import EvidenceObjective, identity_of
from bcmdist.learning.point import Point, bounds_of, moved, moves_of, prior_center, prior_shares, theta_of
from bcmdist.learning.search import PRIOR_SD, stop_when_idle
from bcmdist.model.kernels import metric
from bcmdist.storage.commits import ModelStore


class IndependentRowsObjective(EvidenceObjective):
    """Log evidence of a fitc or sor committee that has absorbed all partitions, with Gaussian noise.

    Parameters
    ----------
    residual : "diagonal" or "none"
    others : as for `CommitteeObjective`
    """

    def __init__(self, runtime, parts, *, points, jitter, store: ModelStore, residual: str, **others: Any):
        super().__init__(runtime, parts, **others)
        self.points, self.jitter, self.store = np.array(points, dtype=float), jitter, store
        self.residual = residual

    @property
    def identity(self) -> str:
        located = hashlib.sha256(self.points.tobytes()).hexdigest()
        return identity_of(self.parts, self.residual, self.scaling.digest, self.mean, located, self.jitter)

    def __call__(self, kernel, likelihood):
        value, gradient, _ = self.at(kernel, likelihood, self.points)
        return value, gradient

    def at(self, kernel, likelihood, points) -> tuple[float, np.ndarray, np.ndarray]:
        """Value at query points (Q, D), and its gradients in the log parameters (P,) and in the points (Q, D)."""
        try:
            return self._at(kernel, likelihood, points)
        except NotPositiveDefinite as error:
            failed = self._failed(str(error), len(kernel.theta) + sum(map(len, likelihood.parameters.values())))
            return *failed, np.zeros(points.shape)

    def _at(self, kernel, likelihood, points):
        with self.store.transient({"points": points}) as references:
            how = {"mean": self.mean, "classes": self.classes, "kernel": kernel, "residual": self.residual}
            trial = Trial(self.scaling, references["points"], self.jitter, likelihood=likelihood, **how)
            query = trial.query()  # may fail: here rather than on every worker
            committee = Committee(self.runtime.sum(TrialMessage(trial), self.parts, label="learn").message)
            belief = committee.posterior
            with self.store.transient({"mean": belief.mean, "covariance": linalg.inverse(belief.factor)}) as moments:
                total = self.runtime.sum(TrialGradients(trial, **moments), self.parts, label="learn")
        parameters = committee_gradient(query, belief, total.parameters)
        return committee.log_evidence, parameters, points_gradient(query, belief, total.points)


def climbed_jointly(
    objective: IndependentRowsObjective, start: Point, inputs: int, steps: int
) -> tuple[Point, np.ndarray, int]:
    """Maximise the log evidence over hyper-parameters and query points jointly, by at most `steps` L-BFGS iterations.

    Return the best point, its query points (Q, D) and the number of evaluations. The evidence is never lower than at
    the start. Coordinates are in units of the kernel's lengthscales; hyper-parameters have the search's weak prior.
    """
    shape, unit = objective.points.shape, metric(start.kernel, inputs)
    moves = moves_of(start)
    at = moves.argmax(axis=0)  # per step, index of the first of the tied parameters that it moves, which are equal
    first, bounds = theta_of(start)[at], np.log(bounds_of(start))[at]
    best: list[Any] = [-np.inf, start, objective.points]
    evaluations, wall = 0, 0.0

    def loss(flat):
        nonlocal evaluations, wall
        evaluations += 1
        points, theta = flat[: -len(first)].reshape(shape) * unit, moves @ flat[-len(first) :]
        point = moved(start, theta)
        value, gradient, to_points = objective.at(point.kernel, point.likelihood, points)
        if not np.isfinite(value):
            return wall, np.zeros_like(flat)  # from which L-BFGS steps back
        gap, share = (theta - prior_center(point, inputs)) / PRIOR_SD, prior_shares(point)
        value, gradient = value - 0.5 * (share * gap) @ gap, gradient - share * gap / PRIOR_SD
        wall = max(wall, 1e3 * (1.0 + abs(value)))
        if value > best[0]:
            best[:] = [value, point, points]
        return -value, -np.concatenate([(to_points * unit).ravel(), gradient @ moves])

    free = [(None, None)] * objective.points.size
    begun = np.concatenate([(objective.points / unit).ravel(), first.clip(*bounds.T)])
    options = {"maxiter": steps, "ftol": 0.0}
    minimize(
        loss, begun, jac=True, method="L-BFGS-B", bounds=[*free, *bounds], callback=stop_when_idle(), options=options
    )
    return best[1], best[2], evaluations
