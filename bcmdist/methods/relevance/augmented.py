"""RVM*: a bump at each new point in addition to the relevance vectors, so that variances grow away from them.

(Quinonero-Candela 2004, section 2.5.1; SYSTEMS T9.)

    f(x) = b(x)'v + w phi(x),   w ~ N(0, var y),   phi the bump around the new point x*,  phi(x*) = 1

With m and v the committee's predictive mean and variance of b(x*)'v, Lambda its precision, Psi the noise of the rows
and V their design:

    m* = m + e q / (1/var y + s),    v* = v + e^2 / (1/var y + s)
    s = d - c' Lambda^-1 c,   q = h - c'E(v),   e = 1 - b(x*)' Lambda^-1 c

from three sums over all absorbed rows, which are read again for each batch of new points:

    c = V' Psi^-1 phi,   d = phi' Psi^-1 phi,   h = phi' Psi^-1 y

`AugmentedSparse` sums over the rows of the relevance vectors only (footnote 14 of the thesis), which it reads once per
commit, and adds only the variance of the bump: v keeps the posterior of all rows, and m* = m, since residuals of single
rows, which are mostly noise, would move the mean (tests/benchmarks/README.md).
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, cast

import numpy as np

from bcmdist import linalg
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.errors import BcmdistError, DataChanged, DataNotFound, InvalidOption
from bcmdist.methods.relevance.dictionaries import Radial
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.weights import Weights
from bcmdist.model.targets import model_rows
from bcmdist.prediction.interface import Predictor, fitted_of
from bcmdist.prediction.limits import MemoryNeed
from bcmdist.runtime.memory import FLOAT
from bcmdist.storage.commits import Reference

# Number of new points per reading of all rows, and rows per block of the sums.
NEW_ROWS, ROWS = 4096, 1024
COPIES = 4  # matrices of rows by new points in memory while bumps are computed
TARGET_VARIANCE = 1.0  # of scaled targets
# Rows of at most this weight are treated as forgotten, as in local prediction.
FADED = 1e-100
WAY_OUT = "restore them, or give --method committee, whose variances are small far from relevance vectors"


@dataclass(frozen=True)
class BumpSums:
    """Sums over rows for a bump at each of m new points."""

    cross: np.ndarray
    """c, (S, m)"""
    square: np.ndarray
    """d, (m,)"""
    pull: np.ndarray
    """h, (m,)"""

    def __add__(self, other: "BumpSums") -> "BumpSums":
        return BumpSums(self.cross + other.cross, self.square + other.square, self.pull + other.pull)


def bump_sums(V, phi, y, noise) -> BumpSums:
    """Sums over rows with design V (n, S), bumps phi (n, m), targets y (n,) and noise variances (n,)."""
    weighed = phi / noise[:, None]
    return BumpSums(V.T @ weighed, np.einsum("ij,ij->j", phi, weighed), y @ weighed)


def with_bumps(V, belief: Belief, sums: BumpSums) -> tuple[np.ndarray, np.ndarray]:
    """m* and v* at new points with design V (m, S), (m,) each."""
    A = linalg.solve_lower(belief.factor, np.array(V.T, order="F"))
    C = linalg.solve_lower(belief.factor, np.array(sums.cross, order="F"))
    s = np.maximum(sums.square - np.einsum("ij,ij->j", C, C), 0.0)
    q = sums.pull - belief.mean @ sums.cross
    e = 1.0 - np.einsum("ij,ij->j", A, C)
    precision = 1.0 / TARGET_VARIANCE + s
    return V @ belief.mean + e * q / precision, np.einsum("ij,ij->j", A, A) + e**2 / precision


@dataclass(frozen=True)
class Augmented(Predictor):
    """Predictor from the committee and its absorbed rows."""

    reads_rows = True
    model: Model
    belief: Belief
    parts: tuple[Partition, ...]
    """absorbed partitions"""
    digests: dict[str, str]
    """digests of the rows as absorbed, by partition key"""
    calibration: None = None

    @classmethod
    def refuse(cls, snapshot) -> None:
        """Refuse models other than relevance vectors with Gaussian noise, and models whose rows are not readable."""
        shared, likelihood = snapshot.model.shared, snapshot.model.likelihood
        bumps = isinstance(shared, Weights) and isinstance(shared.basis, Radial)
        if not (bumps and likelihood.normal):
            raise InvalidOption(
                "method: expected relevance vectors of measurements (--expert rvm or rvm_star) for a bump at each new "
                f"point, got the expert {snapshot.facts.expert} with {likelihood.name}; use --method committee"
            )
        _absorbed(snapshot)

    @classmethod
    def memory(cls, snapshot) -> MemoryNeed:
        need = FLOAT * NEW_ROWS * (COPIES * ROWS + 4 * snapshot.model.shared.size)
        return MemoryNeed(need, "bumps at new points", "give workers more memory, or use --method committee")

    @classmethod
    def of_snapshot(cls, snapshot) -> Self:
        digests = {entry.key: entry.digest for entry in snapshot.ledger}
        fitted = fitted_of(snapshot)
        return cls(fitted.model, fitted.belief, tuple(_absorbed(snapshot)), digests)

    @classmethod
    def of_commit(cls, reference) -> Self:
        return _loaded(cls, reference)

    def latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        blocks = [self._block(X[a : a + NEW_ROWS]) for a in range(0, max(len(X), 1), NEW_ROWS)]
        mean, variance = zip(*blocks, strict=True)
        return np.concatenate(mean), np.concatenate(variance)

    def _block(self, X):
        shared, nothing = self.model.shared, np.zeros(len(X))
        sums = BumpSums(np.zeros((shared.size, len(X))), nothing, nothing)
        for _, Z, obs in self._rows():
            sums += self._sums(X, Z, obs)
        return with_bumps(shared.design(X), self.belief, sums)

    @property
    def _basis(self) -> Radial:
        return cast(Radial, cast(Weights, self.model.shared).basis)

    def _rows(self):
        """Row numbers (n,), scaled inputs (n, D) and observations of the rows of bumps, in blocks."""
        return self._read(self.parts)

    def _read(self, parts):
        for part, rows in read_all(parts):
            if rows.digest != self.digests[part.key]:
                raise DataChanged(
                    f"{part.key}: expected the rows that were absorbed ({self.digests[part.key][:12]}), which a bump "
                    f"at each new point is summed over, read others ({rows.digest[:12]}); {WAY_OUT}"
                )
            Z, obs = model_rows(self.model, part, rows)
            for start in range(0, len(Z), ROWS):
                some = slice(start, start + ROWS)
                yield np.arange(part.start, part.stop)[some], Z[some], obs[some].repeated(part.weight)

    def _sums(self, X, Z, obs: Observations) -> BumpSums:
        shared, likelihood = self.model.shared, self.model.likelihood
        bumps = replace(self._basis, centres=X, rows=np.zeros(len(X)))
        return bump_sums(shared.design(Z), bumps.features(Z), likelihood.targets(obs), likelihood.noise(obs))


@dataclass(frozen=True)
class AugmentedSparse(Augmented):
    """Predictor from the committee and the rows of its relevance vectors."""

    reads_rows = False

    def latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        _, variance = super().latent(X)
        return self.model.shared.design(X) @ self.belief.mean, variance

    def _rows(self):
        return iter(self._vectors)

    @cached_property
    def _vectors(self):
        """Rows of relevance vectors that are absorbed, in the form of `_rows`; reads the partitions that have any."""
        order = np.argsort(self._basis.rows)
        rows, centres = self._basis.rows[order], self._basis.centres[order]
        holding = [part for part in self.parts if np.any((part.start <= rows) & (rows < part.stop))]
        found = []
        for numbers, Z, obs in self._read(holding):
            nearest = np.minimum(np.searchsorted(rows, numbers), len(rows) - 1)
            # Rows of other sources may have the same numbers.
            same = np.flatnonzero((rows[nearest] == numbers) & np.all(centres[nearest] == Z, axis=1))
            if len(same):
                found.append((numbers[same], Z[same], obs[same]))
        return found


def _absorbed(snapshot):
    """Absorbed partitions of a snapshot whose weight is not negligible.

    Raises
    ------
    DataNotFound
        The rows are not readable.
    """
    try:
        return [part for part in absorbed_partitions(snapshot) if part.weight > FADED]
    except BcmdistError as error:
        raise DataNotFound(
            f"{snapshot.url}: expected the rows that it has absorbed, over which a bump at each new point is summed, "
            f"got an error ({error}); {WAY_OUT}"
        ) from error


@lru_cache(maxsize=1)
def _loaded(predictor: type[Augmented], reference: Reference) -> Any:
    return predictor.of_snapshot(Snapshot.load(reference.url, commit=reference.number))
