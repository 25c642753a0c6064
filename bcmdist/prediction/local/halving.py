"""What half of the query points would lose: whether more of them can matter to local predictions.

With L L' = Kqq the first of the whitened values v = L^-1 f^q are those of the first query points alone, so that half of
the query set is the first columns of the design, with the belief about these. Rows are left out of local experts with
and without the other half: if they are predicted as well without, twice as many would hardly help.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.errors import LaplaceNotConverged, NotPositiveDefinite
from bcmdist.experts.expert import find_mode
from bcmdist.model.shared.belief import Belief
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import Reference

# Cells of a partition whose rows are left out: each takes two local experts.
MEASURED_CELLS = 2
# Share of what is known of a row without itself, at least: it is only about right, as halos are no partitions.
LEAST_SHARE = 0.05
# Least curvature of a site: a row that says less of its f counts as noise of this precision.
LEAST_CURVATURE = 1e-10


def half_of(points, shared) -> np.ndarray:
    """Numbers of the shared values that are left with half of the query points: those of the first, and all others."""
    return np.concatenate([np.arange((points + 1) // 2), np.arange(points, shared)])


def marginal(belief: Belief, kept) -> Belief:
    """The belief in some of the shared values of one process."""
    inverse = linalg.inverse(np.asfortranarray(belief.factor))
    covariance = np.asfortranarray(inverse[np.ix_(kept, kept)])
    precision = linalg.inverse(linalg.cholesky(covariance, name="covariance of half of the query values"))
    factor = linalg.cholesky(np.asfortranarray(precision), name="precision of half of the query values")
    return Belief(belief.mean[..., kept], factor)


def left_out_densities(residual, V, belief: Belief, targets, noise, rows) -> np.ndarray:
    """Log densities of the targets of some rows of a local expert, each without itself, (k,), less a constant.

    Given v, with R = residual + noise and p the i-th of the diagonal of R^-1, row i is N(y_i - g, 1 / p) for others,
    p g = e_i'R^-1 (y - V v): a Gaussian site along a = V'R^-1 e_i / p, of which the belief in v is freed. With m its
    mean and h = p a'Lambda^-1 a, the share of row i in what is known along a,

        gap  g(m) / (1 - h),    variance  1 / (p (1 - h))

    which is exact where the rows are a partition of the committee.

    Parameters
    ----------
    residual : (n, n), cov(f | v) at all rows
    targets : (n,), or (n, C) of processes whose mean log density is meant
    noise : (n,)
    rows : (k,)
    """
    R = np.asfortranarray(residual + np.diag(noise))
    L = linalg.cholesky(R, name="cov(y | query) of a local expert")
    pull = linalg.cholesky_solve(L, np.eye(len(R), order="F")[:, rows])
    p = pull[rows, np.arange(len(rows))]
    gap = (pull.T @ (targets - V @ belief.mean.T)).reshape(len(rows), -1) / p[:, None]
    a = linalg.solve_right_transposed(belief.factor, np.asfortranarray(pull.T @ V / p[:, None]))
    others = np.maximum(1.0 - p * np.einsum("ij,ij->i", a, a), LEAST_SHARE)
    return 0.5 * (np.log(p * others) - p * (gap**2).mean(axis=1) / others)


@dataclass(frozen=True)
class HalvingLoss:
    """How much worse local predictions of some rows, each without itself, are with half of the query points.

    In nats a row: number of rows, sum, and sum of squares. Other likelihoods are made Gaussian at the mode f, with
    targets f + s / w and noise 1 / w of score s and curvature w; of processes that differ in these, the first is taken.
    A partition where that fails numerically counts no rows: it serves advice, which no fit should fail for.
    """

    model: Reference

    def __call__(self, part, rows) -> np.ndarray:
        near, arrangement = load_neighbours(self.model), load_arrangement(self.model)
        cells = np.arange(*arrangement.tree.first[arrangement.number(part) :][:2])
        some = cells[np.unique(np.linspace(0, len(cells) - 1, min(MEASURED_CELLS, len(cells))).astype(int))]
        try:
            losses = np.concatenate([_losses(near, cell) for cell in some])
        except (NotPositiveDefinite, LaplaceNotConverged):
            return np.zeros(3)
        return np.array([len(losses), losses.sum(), (losses**2).sum()])


def _losses(near, cell):
    """Of the rows of a cell that the committee has heard, (k,)."""
    query, rows = near.model.query, near.heard_around(cell)
    core = np.flatnonzero(np.isin(rows, near.arrangement.core(cell)))
    if not len(core):
        return np.zeros(0)
    X, V, obs = near.read(rows)
    residual = linalg.mirror(query.residual_lower(V, query.kernel.cross(X, X)))
    belief, targets, noise = _as_gaussian(near, residual, V, obs)
    whole = left_out_densities(residual, V, belief, targets, noise, core)
    kept, points = half_of(len(query.points), V.shape[1]), len(query.points)
    lost = V[:, len(kept) - V.shape[1] + points : points]
    half = residual + lost @ lost.T
    return whole - left_out_densities(half, V[:, kept], marginal(belief, kept), targets, noise, core)


def _as_gaussian(near, residual, V, obs):
    """The belief about a process, targets of its rows as if of a Gaussian likelihood, and their noise."""
    likelihood, belief = near.model.likelihood, near.belief
    if likelihood.exact:
        return belief, likelihood.targets(obs), likelihood.noise(obs)
    f = find_mode(residual, obs, likelihood, V @ belief.mean.T)
    curvature = np.maximum(likelihood.curvature(obs, f), LEAST_CURVATURE).reshape(len(f), -1)[:, 0]
    targets = f.reshape(len(f), -1)[:, 0] + likelihood.score(obs, f).reshape(len(f), -1)[:, 0] / curvature
    shape = belief.mean.shape[-1]
    first = Belief(belief.mean.reshape(-1, shape)[0], belief.factor.reshape(-1, shape, shape)[0])
    return first, targets, 1.0 / curvature


def loss_of(totals) -> dict[str, float] | None:
    """Mean loss, and its standard error; None where nothing was measured."""
    count, total, squares = totals.tolist()
    if not count:
        return None
    mean = total / count
    return {"nats": mean, "error": float(np.sqrt(max(squares / count - mean**2, 0.0) / count))}
