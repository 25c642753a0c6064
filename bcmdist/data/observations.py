"""Observations: targets of rows with their weights, exposures, trials and censoring."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Observations:
    """Targets of n rows on the scale of the likelihood, with their companions; None becomes an array of ones.

    A row of weight w counts as w rows: its log likelihood is multiplied by w. Exception: for Gaussian noise (gaussian,
    onehot) w divides the noise variance, that is, w is a relative precision.
    """

    y: np.ndarray
    """Targets, (n,)."""
    weight: np.ndarray
    """Multiplicity of each row, (n,), positive."""
    exposure: np.ndarray | None = None
    """Time or area over which counts were taken, (n,), positive."""
    trials: np.ndarray | None = None
    """Number of trials of which `y` succeeded, (n,)."""
    event: np.ndarray | None = None
    """1 if a lifetime ended at `y`, 0 if it is right-censored at `y`, (n,)."""
    output: np.ndarray | None = None
    """Number of the output that the row observes, (n,), where there are several; 0 by default."""

    def __post_init__(self):
        if self.output is None:
            object.__setattr__(self, "output", np.zeros(np.shape(self.y), dtype=int))
        for field in fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, np.ones(np.shape(self.y)))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Observations(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(a: Observations, b: Observations) -> Observations:
    """Concatenate observations of n and of m rows."""
    return Observations(*(np.concatenate([getattr(a, f.name), getattr(b, f.name)]) for f in fields(Observations)))


def unweighted(y) -> "Observations":
    """Return observations of weight one from targets (n,)."""
    return Observations(np.asarray(y, dtype=float), np.ones(len(y)))
