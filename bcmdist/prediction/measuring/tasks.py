"""Standardised residuals of some rows of a partition, each predicted without itself."""

from dataclasses import dataclass

import numpy as np

from bcmdist.model.targets import model_rows
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.leave_one_out import left_out, left_out_of_committee
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.prediction.scale import noted_errors
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class LeftOutErrors:
    """By key: of a ledger entry `places`, and `residuals` or `local_residuals`."""

    by_key: dict[str, dict[str, tuple[float, ...]]]

    def __add__(self, other: "LeftOutErrors") -> "LeftOutErrors":
        return LeftOutErrors(self.by_key | other.by_key)


@dataclass(frozen=True)
class LeaveOut:
    """Leave out some rows of a partition that was heard, one by one."""

    model: Reference
    count: int
    """of rows, about"""
    in_cells: bool
    """whether they are all rows of some cells, or any"""
    local: bool
    """whether they are predicted by local prediction, or by the committee alone"""

    def __call__(self, part, rows) -> LeftOutErrors:
        fitted = load_fitted(self.model)
        likelihood = fitted.model.likelihood
        X, obs = model_rows(fitted.model, part, rows)
        generator = np.random.default_rng(part.start)
        if self.in_cells:
            some = _in_cells(self.model, part, self.count, generator)
        else:
            some = np.sort(generator.permutation(part.rows)[: self.count])
        y, noise = likelihood.targets(obs)[some], likelihood.noise(obs)[some]
        if self.local:
            mean, variance = load_neighbours(self.model).latent(X[some])
            mean, variance = left_out(mean, variance, part.weight * (y - mean) / noise, part.weight / noise)
        else:
            how = {"weight": part.weight}
            mean, variance = left_out_of_committee(fitted.model.shared, likelihood, fitted.belief, X, obs, some, **how)
        places, residuals = noted_errors(X[some], y - mean, variance + noise)
        return LeftOutErrors(
            {part.key: {"places": places, "local_residuals" if self.local else "residuals": residuals}}
        )


def _in_cells(model, part, count, generator):
    """Rows of a partition that local experts have heard: all of some cells, one at least."""
    arrangement = load_arrangement(model)
    number = arrangement.number(part)
    cells = np.arange(*arrangement.tree.first[number : number + 2])
    found = [arrangement.core(cell) - part.start for cell in generator.permutation(cells)]
    found = [rows[(rows >= 0) & (rows < part.rows)] for rows in found]
    enough = np.cumsum([len(rows) for rows in found]).searchsorted(0.9 * count) + 1
    return np.sort(np.concatenate(found[:enough]))
