"""Sums over rows from which all is learned about weights of given functions, without the rows (SYSTEMS I.9).

    y = Phi w + e,  e ~ N(0, s2 / row weight):     Phi'W Phi,  Phi'W y,  y'W y,  n

They add over partitions, and give the evidence and the posterior for every noise variance s2 and every prior of the
weights; those of some of the functions are a block of those of all.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.model.loading import load_scaling
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import BASES, Basis, Weights
from bcmdist.model.units import AFFINE
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array


@dataclass(frozen=True)
class Sums:
    """What some rows say of the weights of M functions, with W = diag(row weights)."""

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
        """Those of the functions of some numbers."""
        return Sums(self.gram[np.ix_(which, which)], self.cross[which], self.square, self.rows, self.log_weight)


def sums_of(Phi, y, weight) -> Sums:
    """Of rows with functions Phi (n, M), targets y (n,) and row weights (n,)."""
    root = np.sqrt(weight)
    V, z = np.asfortranarray(Phi * root[:, None]), root * y
    return Sums(linalg.gram(V), V.T @ z, float(z @ z), len(y), float(np.log(weight).sum()))


@dataclass(frozen=True)
class Functions:
    """Functions of scaled inputs that tasks carry by reference: those of a basis, and of the mean behind them."""

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
    """Those of shared weights, whose basis has arrays behind references by name."""
    return Functions(scaling, weights.basis.name, tuple(references.items()), weights.mean.name)


@dataclass(frozen=True)
class RowSums:
    """The sums of a partition, for measurements."""

    functions: Functions

    def __call__(self, part, rows) -> Sums:
        obs = load_scaling(self.functions.scaling).observations(rows.obs, AFFINE)
        return sums_of(self.functions.design(rows.X), obs.y, obs.weight)
