"""Observations: targets of rows with their weights, exposures, trials, censoring and known error variances."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Name of the array of known error variances of the targets, in their squared unit.
TARGET_VARIANCE = "target_variance"


@dataclass(frozen=True)
class Observations:
    """Targets of n rows on the scale of the likelihood, with their companions.

    None becomes an array of ones, for known variances of zeros. A row of weight w counts as w rows: its log likelihood
    is multiplied by w. Exception: for Gaussian noise (gaussian, onehot) w divides the learned noise variance, that is,
    w is a relative precision. The known variance of a row is added to that, whatever its weight.
    """

    y: NDArray[np.float64]
    """Targets, (n,)."""
    weight: NDArray[np.float64]
    """Multiplicity of each row, (n,), positive."""
    exposure: NDArray[np.float64] = None  # type: ignore[assignment]  # None becomes an array, here and below
    """Time or area over which counts were taken, (n,), positive."""
    trials: NDArray[np.float64] = None  # type: ignore[assignment]
    """Number of trials of which `y` succeeded, (n,)."""
    event: NDArray[np.float64] = None  # type: ignore[assignment]
    """1 if a lifetime ended at `y`, 0 if it is right-censored at `y`, (n,)."""
    target_variance: NDArray[np.float64] = None  # type: ignore[assignment]
    """Known variance of the error of `y`, in its squared unit, (n,), at least 0."""
    output: NDArray[np.intp] = None  # type: ignore[assignment]
    """Number of the output that the row observes, (n,), where there are several; 0 by default."""

    def __post_init__(self) -> None:
        if self.output is None:
            object.__setattr__(self, "output", np.zeros(np.shape(self.y), dtype=int))
        for field in fields(self):
            if getattr(self, field.name) is None:
                empty = np.zeros if field.name == "target_variance" else np.ones
                object.__setattr__(self, field.name, empty(np.shape(self.y)))

    def equal(self, other: "Observations") -> bool:
        """Whether all values are equal."""
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> "Observations":
        return Observations(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def reliability(self) -> NDArray[np.float64]:
        """Share of the variance of each target that is not known error, (n,), for targets of variance 1 without it."""
        return 1.0 / (1.0 + self.target_variance)

    def repeated(self, times: float | NDArray[np.float64]) -> "Observations":
        """These rows as if each had been observed `times` times, a positive number or one for each row, (n,).

        Of Gaussian rows that divides the whole variance of the noise, known or learned.
        """
        return replace(self, weight=times * self.weight, target_variance=self.target_variance / times)


def joined(*several: Observations) -> Observations:
    """Concatenate observations, at least one set of them."""
    return Observations(*(np.concatenate([getattr(obs, f.name) for obs in several]) for f in fields(Observations)))


def unweighted(y: ArrayLike) -> Observations:
    """Return observations of weight one from targets (n,)."""
    targets: NDArray[np.float64] = np.asarray(y, dtype=float)
    return Observations(targets, np.ones(len(targets)))
