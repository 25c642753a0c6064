"""Tasks: leave-one-out predictions, and standardised residuals of these, at some rows of an absorbed partition."""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.observations import Observations, joined
from bcmdist.experts.contributions import load_values
from bcmdist.experts.leave_one_out import cavity
from bcmdist.model.loading import load_model
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.standardised_residuals import seed_of, standardised_residuals
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.leave_one_out import as_absorbed_through, left_out_of_committee
from bcmdist.prediction.local.halos import load_arrangement, whole_cells
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.entry import ResidualRecord


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
    """number of rows to predict, or of cells, of which all rows are predicted"""
    in_cells: bool
    """whether the rows are those of randomly chosen cells, or random rows"""
    rows_per_cell: int
    """random rows of each cell whose residuals are kept"""
    local: bool
    """whether local prediction or the committee predicts the rows"""
    at: BlobReference | None = None
    """shared values at which the committee has linearised its rows; None: each expert's own mode"""

    def __call__(self, part, rows) -> LeftOutErrors:
        fitted = load_fitted(self.model)
        likelihood = fitted.model.likelihood
        X, obs = model_rows(fitted.model, part, rows)
        generator = np.random.default_rng(seed_of(rows))
        some = _some(self, part, generator)
        kept = self._sample_cells(part.start + some, generator) if self.in_cells else slice(None)
        mean, variance = _left_out(self, part, X, obs, some)
        some, mean, variance = some[kept], mean[kept], variance[kept]
        places, errors = standardised_residuals(likelihood, X[some], mean, variance, obs[some], generator)
        committee, local = (None, errors) if self.local else (errors, None)
        return LeftOutErrors({part.key: ResidualRecord(places, committee, local)})

    def _sample_cells(self, numbers, generator):
        """Positions, ascending, of some rows of each cell among rows of these numbers, which are ascending."""
        cells = np.searchsorted(load_arrangement(self.model).edges, numbers, side="right")
        each = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(cells)) + 1)
        return np.sort(np.concatenate([generator.permutation(rows)[: self.rows_per_cell] for rows in each]))


@dataclass(frozen=True)
class LeftOutPredictions:
    """Leave-one-out mean and variance of f at n rows; `+` concatenates."""

    number: np.ndarray
    """row numbers in their data set, (n,)"""
    X: np.ndarray
    """in original units, (n, D)"""
    obs: Observations
    """in the units of the model"""
    mean: np.ndarray
    """(n,) or (n, C), like the variance"""
    variance: np.ndarray

    def __add__(self, other: "LeftOutPredictions") -> "LeftOutPredictions":
        number, X, mean, variance = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("number", "X", "mean", "variance")
        )
        return LeftOutPredictions(number, X, joined(self.obs, other.obs), mean, variance)

    def __getitem__(self, rows) -> "LeftOutPredictions":
        """Select rows by position."""
        number, X, obs = self.number[rows], self.X[rows], self.obs[rows]
        return LeftOutPredictions(number, X, obs, self.mean[rows], self.variance[rows])


@dataclass(frozen=True)
class PredictLeftOut:
    """Task: leave-one-out predictions of some rows of a partition; fields as of `LeaveOut`."""

    model: Reference
    count: int
    in_cells: bool
    local: bool
    at: BlobReference | None = None

    def __call__(self, part, rows) -> LeftOutPredictions:
        X, obs = model_rows(load_model(self.model), part, rows)
        some = _some(self, part, np.random.default_rng(seed_of(rows)))
        return LeftOutPredictions(part.start + some, rows.X[some], obs[some], *_left_out(self, part, X, obs, some))


def _some(task, part, generator):
    """Indices of the rows of a partition to predict, ascending."""
    if task.in_cells:
        return whole_cells(load_arrangement(task.model), part, task.count, generator)
    return np.sort(generator.permutation(part.rows)[: task.count])


def _left_out(task, part, X, obs, some) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out mean and variance of f at some rows of a partition with scaled inputs X (n, D)."""
    if task.local:
        return _left_out_locally(task.model, part, part.start + some, X[some], obs[some])
    fitted = load_fitted(task.model)
    shared, belief = as_absorbed_through(fitted.model, fitted.belief, part.query)
    at = load_values(task.at, fitted.model) if task.at and shared is fitted.model.shared else None
    return left_out_of_committee(shared, fitted.model.likelihood, belief, X, obs, some, weight=part.weight, at=at)


def _left_out_locally(reference, part, numbers, X, obs) -> tuple[np.ndarray, np.ndarray]:
    model = load_model(reference)
    mean, variance = load_neighbours(reference).latent_of_fit(numbers, X)
    site = model.likelihood.score(obs, mean), model.likelihood.curvature(obs, mean)
    prior = model.shared.kernel.diagonal(X) + (model.shared.mean.design(X) ** 2).sum(axis=1)
    prior = prior[:, None] if mean.ndim == 2 else prior
    return cavity(mean, variance, *(part.weight * one for one in site), prior=prior)
