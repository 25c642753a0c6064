"""What half of the query points would change: whether more of them can matter to local predictions.

With L L' = Kqq the first of the whitened values v = L^-1 f^q are those of the first query points alone, so that half of
the query set is the first columns of the design, with the belief about these. Local predictions of rows left out are
compared with and without the other half. What doubling the set would gain is less than what halving it loses.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.model.loading import load_model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.query import Query
from bcmdist.model.targets import model_rows
from bcmdist.prediction.leave_one_out import left_out
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import Neighbours, load_neighbours
from bcmdist.storage.commits import Reference

# Cells of a partition at whose rows predictions are compared: each takes two local experts.
MEASURED_CELLS = 3
# Least curvature of a site: a row that says less of its f counts as noise of this precision.
LEAST_CURVATURE = 1e-10


def half_of(query: Query, belief: Belief) -> tuple[Query, Belief]:
    """The first half of some query points, and what is believed of their values and of the mean's weights."""
    half = (len(query.points) + 1) // 2
    kept = np.concatenate([np.arange(half), np.arange(len(query.points), belief.mean.shape[-1])])
    factor = np.asfortranarray(query.factor[:half, :half])
    factors = belief.factor.reshape(-1, *belief.factor.shape[-2:])
    fewer = np.stack([_marginal(one, kept) for one in factors])
    shape = (*belief.factor.shape[:-2], len(kept), len(kept))
    believed = Belief(belief.mean[..., kept], fewer[0] if len(shape) == 2 else fewer)
    return replace(query, points=query.points[:half], factor=factor), believed


def _marginal(factor, kept):
    """Lower factor of the precision of some of the values whose precision has the factor `factor`."""
    covariance = np.asfortranarray(linalg.inverse(np.asfortranarray(factor))[np.ix_(kept, kept)])
    precision = linalg.inverse(linalg.cholesky(covariance, name="covariance of half of the query values"))
    return linalg.cholesky(np.asfortranarray(precision), name="precision of half of the query values")


def halved(near: Neighbours) -> Neighbours:
    """The same local predictions with half of the query points."""
    query, belief = half_of(near.model.query, near.belief)
    return Neighbours(replace(near.model, shared=query), belief, near.arrangement, near.halos, near.heard, near.store)


@dataclass(frozen=True)
class HalvingLoss:
    """How much local predictions of some rows, each without itself, lose with half of the query points.

    Divergence of the one normal prediction of an observation from the other,

        KL = 1/2 (log s'/s + (s + (m' - m)^2) / s' - 1),   s = v + 1 / w, w the curvature of a row's own site,

    in nats, summed over rows and averaged over processes; and the number of rows.
    """

    model: Reference

    def __call__(self, part, rows) -> np.ndarray:
        near, arrangement = load_neighbours(self.model), load_arrangement(self.model)
        X, obs = model_rows(load_model(self.model), part, rows)
        cells = np.arange(*arrangement.tree.first[arrangement.number(part) :][:2])
        some = np.unique(np.linspace(0, len(cells) - 1, min(MEASURED_CELLS, len(cells))).astype(int))
        inside = np.concatenate([arrangement.core(cell) for cell in cells[some]])
        inside = inside[(inside >= part.start) & (inside < part.stop)] - part.start
        if not len(inside):
            return np.zeros(2)
        X, obs = X[inside], obs[inside]
        (m, s), (mean, spread) = (_left_out(one, X, obs) for one in (near, halved(near)))
        loss = 0.5 * (np.log(spread / s) + (s + (mean - m) ** 2) / spread - 1.0)
        return np.array([loss.reshape(len(X), -1).mean(axis=1).sum(), len(X)])


def _left_out(near, X, obs):
    """Mean of f at rows, each without itself, and the variance of what a row says of it."""
    likelihood = near.model.likelihood
    mean, variance = near.latent(X)
    score, curvature = likelihood.score(obs, mean), likelihood.curvature(obs, mean)
    mean, variance = left_out(mean, variance, score, curvature)
    return mean, variance + 1.0 / np.maximum(curvature, LEAST_CURVATURE)
