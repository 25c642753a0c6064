"""Sums over rows that are sufficient for learning the weights of given functions (SYSTEMS I.9).

    y = Phi w + e,  e ~ N(0, s2 / row weight):     Phi'W Phi,  Phi'W y,  y'W y,  n

The sums add over partitions, and give the evidence and the posterior for any noise variance s2 and any prior of the
weights. The sums for a subset of the functions are a block of the sums for all.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import BASES, Basis, Weights
from bcmdist.model.units import AFFINE
from bcmdist.storage.commits import BlobReference, load_array


@dataclass(frozen=True)
class Sums:
    """Sums over some rows for M functions, with W = diag(row weights)."""

    gram: np.ndarray
    """Phi'W Phi, (M, M)"""
    cross: np.ndarray
    """Phi'W y, (M,)"""
    square: float
    """y'W y"""
    rows: int
    log_weight: float = 0.0
    """log |W|"""

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.rows + other.rows,
            self.log_weight + other.log_weight,
        )

    def __sizeof__(self):
        return self.gram.nbytes + self.cross.nbytes

    def some(self, which) -> "Sums":
        """Sums for the functions with the given indices."""
        return Sums(self.gram[np.ix_(which, which)], self.cross[which], self.square, self.rows, self.log_weight)


def sums_of(Phi, y, weight) -> Sums:
    """Sums over rows with functions Phi (n, M), targets y (n,) and row weights (n,)."""
    root = np.sqrt(weight)
    V, z = np.asfortranarray(Phi * root[:, None]), root * y
    return Sums(linalg.gram(V), V.T @ z, float(z @ z), len(y), float(np.log(weight).sum()))


@dataclass(frozen=True)
class Functions:
    """Functions of scaled inputs, passed to tasks by reference: those of a basis, followed by those of the mean."""

    scaling: BlobReference
    basis: str
    arrays: tuple[tuple[str, BlobReference], ...]
    mean: str

    def of_basis(self) -> Basis:
        """The basis."""
        return BASES[self.basis].from_arrays({name: load_array(array) for name, array in self.arrays})

    def design(self, X) -> np.ndarray:
        """Values at rows in original units: (n, D) -> (n, B + P)."""
        scaled = load_scaling(self.scaling).inputs(X)
        return np.hstack([self.of_basis().features(scaled), Mean(self.mean).design(scaled)])


def functions_of(weights: Weights, scaling: BlobReference, references) -> Functions:
    """Functions of shared weights, given references to the arrays of their basis by name."""
    return Functions(scaling, weights.basis.name, tuple(references.items()), weights.mean.name)


@dataclass(frozen=True)
class RowSums:
    """Task: the sums of a partition, for Gaussian noise."""

    functions: Functions

    def __call__(self, part, rows) -> Sums:
        obs = load_scaling(self.functions.scaling).observations(rows.obs, AFFINE)
        return sums_of(self.functions.design(rows.X), obs.y, obs.weight)
