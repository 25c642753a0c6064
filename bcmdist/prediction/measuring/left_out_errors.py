"""Standardised residuals of some rows of a partition, each predicted without itself."""

from dataclasses import dataclass

import numpy as np

from bcmdist.experts.loading import load_values
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.standardised_residuals import seed_of, standardised_residuals
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.leave_one_out import left_out, left_out_of_committee
from bcmdist.prediction.left_out_rows import left_out_rows
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.ledger import ResidualRecord


@dataclass(frozen=True)
class LeftOutErrors:
    """Residual records of partitions by key."""

    by_key: dict[str, ResidualRecord]

    def __add__(self, other: "LeftOutErrors") -> "LeftOutErrors":
        return LeftOutErrors(self.by_key | other.by_key)


@dataclass(frozen=True)
class LeaveOut:
    """Leave out some rows of a partition that was absorbed, one by one."""

    model: Reference
    count: int
    """of rows, about"""
    in_cells: bool
    """whether they are all rows of some cells, or any"""
    local: bool
    """whether they are predicted by local prediction, or by the committee alone"""
    at: BlobReference | None = None
    """shared values given which the committee has linearised its rows; None: each expert at its own mode"""

    def __call__(self, part, rows) -> LeftOutErrors:
        fitted = load_fitted(self.model)
        likelihood = fitted.model.likelihood
        X, obs = model_rows(fitted.model, part, rows)
        generator = np.random.default_rng(seed_of(rows))
        if self.in_cells:
            some = _in_cells(self.model, part, self.count, generator)
        else:
            some = np.sort(generator.permutation(part.rows)[: self.count])
        told = self._by_local(part, X[some], obs[some]) if self.local else self._by_committee(part, X, obs, some)
        places, errors = standardised_residuals(likelihood, X[some], *told, obs[some], generator)
        committee, local = (None, errors) if self.local else (errors, None)
        return LeftOutErrors({part.key: ResidualRecord(places, committee, local)})

    def _by_local(self, part, X, obs) -> tuple[np.ndarray, np.ndarray]:
        model = load_fitted(self.model).model
        mean, variance = load_neighbours(self.model).latent(X)
        site = model.likelihood.score(obs, mean), model.likelihood.curvature(obs, mean)
        prior = model.shared.kernel.diagonal(X) + (model.shared.mean.design(X) ** 2).sum(axis=1)
        return left_out(mean, variance, *(part.weight * one for one in site), prior=prior)

    def _by_committee(self, part, X, obs, some) -> tuple[np.ndarray, np.ndarray]:
        fitted = load_fitted(self.model)
        shared, likelihood = fitted.model.shared, fitted.model.likelihood
        if likelihood.exact:
            return left_out_of_committee(shared, likelihood, fitted.belief, X, obs, some, weight=part.weight)
        at = load_values(self.at, fitted.model) if self.at else None
        return left_out_rows(shared, likelihood, X, obs, fitted.belief, some=some, at=at, copies=part.weight)


def _in_cells(model, part, count, generator):
    """Rows of a partition that local experts have absorbed: all of some cells, one at least."""
    arrangement = load_arrangement(model)
    number = arrangement.number(part)
    cells = np.arange(*arrangement.tree.first[number : number + 2])
    found = [arrangement.core(cell) - part.start for cell in generator.permutation(cells)]
    found = [rows[(rows >= 0) & (rows < part.rows)] for rows in found]
    enough = np.cumsum([len(rows) for rows in found]).searchsorted(0.9 * count) + 1
    return np.sort(np.concatenate(found[:enough]))
