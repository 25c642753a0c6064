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

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, np.ones(np.shape(self.y)))

    def equal(self, other: "Observations") -> bool:
        """Whether all values are equal."""
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, rows):
        return Observations(*(getattr(self, field.name)[rows] for field in fields(self)))


def joined(*several: Observations) -> Observations:
    """Concatenate observations, at least one set of them."""
    return Observations(*(np.concatenate([getattr(obs, f.name) for obs in several]) for f in fields(Observations)))


def unweighted(y) -> "Observations":
    """Return observations of weight one from targets (n,)."""
    return Observations(np.asarray(y, dtype=float), np.ones(len(y)))
