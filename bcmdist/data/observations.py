"""Observations: what was seen at some rows, with all that says how it counts."""

from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Observations:
    """Targets of n rows in the units the likelihood sees, with their companions; None stands for ones.

    A row of weight w counts for w rows: its log likelihood is multiplied by w. Not so where noise is Gaussian
    (gaussian, onehot): there w divides the noise variance, a precision.
    """

    y: np.ndarray
    """Targets, (n,)."""
    weight: np.ndarray
    """How many rows each row counts for, (n,), positive."""
    exposure: np.ndarray | None = None
    """Time or area in which counts were taken, (n,), positive."""
    trials: np.ndarray | None = None
    """Number of trials of which `y` succeeded, (n,)."""
    event: np.ndarray | None = None
    """1 where a lifetime ended at `y`, 0 where it was still going on: right-censored, (n,)."""

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, np.ones(np.shape(self.y)))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Observations(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(a: Observations, b: Observations) -> Observations:
    """Observations of n and then of m rows."""
    return Observations(*(np.concatenate([getattr(a, f.name), getattr(b, f.name)]) for f in fields(Observations)))


def unweighted(y) -> "Observations":
    """Observations of weight one from targets (n,)."""
    return Observations(np.asarray(y, dtype=float), np.ones(len(y)))
