"""Standardised residuals of some rows of a partition, each predicted without itself."""

from dataclasses import dataclass

import numpy as np

from bcmdist.model.targets import model_rows
from bcmdist.prediction.fitted import load_fitted
from bcmdist.prediction.leave_one_out import left_out, left_out_of_committee
from bcmdist.prediction.local.halos import load_arrangement
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class LeftOutErrors:
    """By key: of a ledger entry `places`, `residuals` and, where there are cells, `local_residuals`."""

    by_key: dict[str, dict[str, tuple[float, ...]]]

    def __add__(self, other: "LeftOutErrors") -> "LeftOutErrors":
        return LeftOutErrors(self.by_key | other.by_key)


@dataclass(frozen=True)
class LeaveOut:
    """Leave out some rows of a partition that was heard, one by one."""

    model: Reference
    count: int
    """of rows, about"""
    local: bool
    """whether by local prediction, too"""

    def __call__(self, part, rows) -> LeftOutErrors:
        fitted = load_fitted(self.model)
        likelihood = fitted.model.likelihood
        X, obs = model_rows(fitted.model, part, rows)
        some = _in_cells(self.model, part, self.count) if self.local else _spread(part.rows, self.count)
        seen, noise = likelihood.targets(obs)[some], likelihood.noise(obs)[some]
        how = {"weight": part.weight}
        mean, variance = left_out_of_committee(fitted.model.shared, likelihood, fitted.belief, X, obs, some, **how)
        found = {"places": X[some].ravel(), "residuals": (seen - mean) / np.sqrt(variance + noise)}
        if self.local:
            mean, variance = load_neighbours(self.model).latent(X[some])
            mean, variance = left_out(mean, variance, (seen - mean) / noise, 1.0 / noise)
            found["local_residuals"] = (seen - mean) / np.sqrt(variance + noise)
        return LeftOutErrors({part.key: {name: tuple(value.tolist()) for name, value in found.items()}})


def _spread(rows, count):
    """Rows that are evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(count, rows)).astype(int))


def _in_cells(model, part, count):
    """Rows of a partition that local experts have heard: all of some cells that are evenly spread."""
    arrangement = load_arrangement(model)
    number = arrangement.number(part)
    cells = np.arange(*arrangement.tree.first[number : number + 2])
    chosen = cells[_spread(len(cells), max(1, round(count / part.rows * len(cells))))]
    rows = np.concatenate([arrangement.core(cell) for cell in chosen])
    inside = rows[(rows >= part.start) & (rows < part.stop)] - part.start
    return inside if len(inside) else _spread(part.rows, 1)
