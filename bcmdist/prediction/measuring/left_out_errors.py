"""Task: standardised leave-one-out residuals at some rows of an absorbed partition."""

from dataclasses import dataclass

import numpy as np

from bcmdist.experts.contributions import load_values
from bcmdist.experts.leave_one_out import cavity
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.standardised_residuals import seed_of, standardised_residuals
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.leave_one_out import as_absorbed_through, left_out_of_committee
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.ledger import ResidualRecord


@dataclass(frozen=True)
class LeftOutErrors:
    """Residual records by partition key; `+` joins them."""

    by_key: dict[str, ResidualRecord]

    def __add__(self, other: "LeftOutErrors") -> "LeftOutErrors":
        return LeftOutErrors(self.by_key | other.by_key)


@dataclass(frozen=True)
class LeaveOut:
    """Task: residual records (`LeftOutErrors`) of some rows of a partition, each predicted from all other rows."""

    model: Reference
    """the commit that predicts"""
    count: int
    """approximate number of rows"""
    in_cells: bool
    """whether the rows are all rows of randomly chosen cells, or random rows"""
    local: bool
    """whether local prediction or the committee predicts the rows"""
    at: BlobReference | None = None
    """shared values at which the committee has linearised its rows; None: each expert's own mode"""

    def __call__(self, part, rows) -> LeftOutErrors:
        fitted = load_fitted(self.model)
        likelihood = fitted.model.likelihood
        X, obs = model_rows(fitted.model, part, rows)
        generator = np.random.default_rng(seed_of(rows))
        if self.in_cells:
            some = _in_cells(self.model, part, self.count, generator)
        else:
            some = np.sort(generator.permutation(part.rows)[: self.count])
        predicted = self._by_local(part, X[some], obs[some]) if self.local else self._by_committee(part, X, obs, some)
        places, errors = standardised_residuals(likelihood, X[some], *predicted, obs[some], generator)
        committee, local = (None, errors) if self.local else (errors, None)
        return LeftOutErrors({part.key: ResidualRecord(places, committee, local)})

    def _by_local(self, part, X, obs) -> tuple[np.ndarray, np.ndarray]:
        model = load_fitted(self.model).model
        mean, variance = load_neighbours(self.model).latent(X)
        site = model.likelihood.score(obs, mean), model.likelihood.curvature(obs, mean)
        prior = model.shared.kernel.diagonal(X) + (model.shared.mean.design(X) ** 2).sum(axis=1)
        return cavity(mean, variance, *(part.weight * one for one in site), prior=prior)

    def _by_committee(self, part, X, obs, some) -> tuple[np.ndarray, np.ndarray]:
        fitted = load_fitted(self.model)
        shared, belief = as_absorbed_through(fitted.model, fitted.belief, part.query)
        at = load_values(self.at, fitted.model.through(part.query)) if self.at else None
        return left_out_of_committee(shared, fitted.model.likelihood, belief, X, obs, some, weight=part.weight, at=at)


def _in_cells(model, part, count, generator):
    """Indices of about `count` rows of a partition: all rows of randomly chosen cells, at least one cell."""
    arrangement = load_arrangement(model)
    number = arrangement.number(part)
    cells = np.arange(*arrangement.tree.first[number : number + 2])
    found = [arrangement.core(cell) - part.start for cell in generator.permutation(cells)]
    found = [rows[(rows >= 0) & (rows < part.rows)] for rows in found]
    enough = np.cumsum([len(rows) for rows in found]).searchsorted(0.9 * count) + 1
    return np.sort(np.concatenate(found[:enough]))
