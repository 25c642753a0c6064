"""Operation counts of the parts of a fit, from their formulas, for n rows, Q query points and D inputs.

Terms linear in n or Q alone, and row-wise functions of likelihoods, are not counted. The numbers of iterations of
searches are estimates from several data sets; the benchmarks of plans use other data sets.
"""

import math
from dataclasses import dataclass, fields

from bcmdist.prediction.local.halos import CONSIDERED, PROBES
from bcmdist.runtime.memory import FLOAT

# Laplace approximation: Newton steps, and Cholesky factorisations (factors are reused near the mode).
# Expectation propagation: sweeps, each with one factor and one inverse.
MODE_STEPS, MODE_FACTORS = 7, 3
SWEEPS = 30
# Numbers moved per element and per log2 of the number of elements, in sorting by two keys: about 100 ns for 1000.
SORTED = 30


@dataclass(frozen=True)
class Work:
    """Amounts of work of each kind. Supports addition, and multiplication by a number from the left."""

    factor: float = 0.0
    """flops of Cholesky factors: n^3 / 3"""
    solve: float = 0.0
    """flops of triangular solves: n^2 per column"""
    product: float = 0.0
    """flops of symmetric products W'W: S^2 per row"""
    inverse: float = 0.0
    """flops of inverses from Cholesky factors: 2 n^3 / 3"""
    kernel: float = 0.0
    """number of covariances k(x, z), computed in one call"""
    blocks: float = 0.0
    """number of covariances computed by blocks of columns; of symmetric matrices only half"""
    gradient: float = 0.0
    """number of covariances with gradients in the hyper-parameters"""
    moved: float = 0.0
    """bytes read and written by element-wise operations"""
    dotted: float = 0.0
    """bytes of matrices in matrix-vector products"""

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    def __rmul__(self, times: float) -> "Work":
        return Work(*(times * a for a in self.counts))

    @property
    def counts(self) -> tuple[float, ...]:
        """The amounts, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def flops(self, inputs) -> float:
        """Return the flops of BLAS, LAPACK and the distances in covariances; other work is bound by memory."""
        dense = self.factor + self.solve + self.product + self.inverse + 2.0 * self.dotted / FLOAT
        return dense + 2.0 * (inputs + 2) * (self.kernel + self.blocks + 3.0 * self.gradient)


def factored(n) -> Work:
    """Form I + W^1/2 K W^1/2 (or K + noise), and its Cholesky factor."""
    return Work(factor=n**3 / 3, moved=3 * FLOAT * n**2)


def inverted(n) -> Work:
    """A Cholesky factor, and the inverse from it."""
    return factored(n) + Work(inverse=2 * n**3 / 3)


def mode(n) -> Work:
    """The Laplace mode of n rows with a full covariance matrix: matrix-vector products for step, line search, test."""
    return MODE_FACTORS * factored(n) + Work(dotted=(5 * MODE_STEPS + 4) * FLOAT * n**2)


def evidence(n, *, exact, processes=1) -> Work:
    """The log evidence of a block of n rows with its gradient (`experts.evidence`)."""
    K = Work(gradient=n**2, moved=6 * FLOAT * n**2)
    if exact:
        return K + inverted(n) + Work(moved=(2 + 2 * processes) * FLOAT * n**2)
    return K + processes * (mode(n) + inverted(n) + Work(dotted=4 * FLOAT * n**2, moved=8 * FLOAT * n**2))


def left_out(n, *, exact, processes=1) -> Work:
    """Leave-one-out predictions in a neighbourhood of n rows (`learning.left_out.density`)."""
    K = Work(kernel=n**2, moved=8 * FLOAT * n**2)
    return K + (factored(n) if exact else processes * (mode(n) + inverted(n)))


def design(n, Q) -> Work:
    """The whitened design k(X, X^q) L^-T of n rows."""
    return Work(blocks=n * Q, solve=n * Q**2, moved=2 * FLOAT * n * Q)


def residual(n, Q) -> Work:
    """The residual covariance cov(f | v) of n rows."""
    return Work(blocks=n**2 / 2, product=n**2 * Q, moved=2 * FLOAT * n**2)


def own_mode(n) -> Work:
    """The Laplace mode of n rows under their own prior; the covariance matrix is reused for the residual."""
    return Work(kernel=n**2, blocks=-(n**2) / 2, moved=6 * FLOAT * n**2) + mode(n)


def message(n, Q, *, exact, copies=1, ep=False, own=True) -> Work:
    """A partition's message (`experts.expert`), and its addition to another.

    Parameters
    ----------
    exact : whether the likelihood is Gaussian; else linearised at a mode
    copies : number of matrices of an expert: one per class
    ep : whether by expectation propagation
    own : whether linearised at the expert's own mode, or given the shared values
    """
    rows = design(n, Q) + residual(n, Q)
    site = copies * (factored(n) + Work(solve=n**2 * Q))
    said = copies * Work(product=n * Q**2, moved=FLOAT * (2 * n * Q + 4 * Q**2))
    if exact:
        return rows + site + said
    sweeps = SWEEPS * (inverted(n) + Work(dotted=4 * FLOAT * n**2))
    return rows + copies * (sweeps if ep else own_mode(n) if own else mode(n)) + site + said


def message_apart(n, Q, *, exact, copies=1) -> Work:
    """A message with independent or no residuals of rows (fitc, sor); the mode of all classes takes one matrix."""
    step = Work(product=copies**2 * n * Q**2, factor=(copies * Q) ** 3 / 3, moved=2 * copies * FLOAT * n * Q)
    said = copies * Work(product=n * Q**2, moved=FLOAT * (2 * n * Q + 4 * Q**2))
    return design(n, Q) + said + (Work() if exact else MODE_FACTORS * step)


def left_out_of_committee(n, k, Q, *, exact) -> Work:
    """Leave-one-out predictions of the committee at k rows of a partition; at all n if the likelihood is not Gaussian.

    See `prediction.leave_one_out` and `prediction.left_out_rows`.
    """
    rows = design(n, Q) + residual(n, Q) + factored(n)
    if exact:
        return rows + Work(solve=n**2 * (2 * Q + k) + 2 * k * Q**2)
    return rows + own_mode(n) + Work(solve=n**2 * (2 * Q + n) + 2 * n * Q**2)


def local_expert(n, k, Q, *, exact, copies=1) -> Work:
    """A local expert of n rows, and its predictions at k rows (`prediction.local.expert`)."""
    search = factored(n) if exact else copies * (mode(n) + factored(n))
    at = design(k, Q) + Work(kernel=n * k, product=4 * n * k * Q, solve=copies * (2 * n**2 * k + k * Q**2))
    return design(n, Q) + residual(n, Q) + search + at + Work(moved=2 * FLOAT * n * Q)


def halving(n, k, Q) -> Work:
    """Loss at k rows of a local expert with half of the query points (`prediction.local.halving`)."""
    belief = Work(factor=(Q / 2) ** 3, inverse=2 * Q**3 / 3 + 2 * (Q / 2) ** 3)
    half = Work(solve=n**2 * Q / 2, product=n * (Q / 2) ** 2, moved=4 * FLOAT * n * Q)
    return belief + half + Work(solve=4 * n**2 * k + 2 * k * Q**2, product=6 * n * k * Q)


def nearest(n, centres) -> Work:
    """Distances of n rows to some centres, sorted for each centre (`learning.blocks.tasks`)."""
    return Work(kernel=n * centres, moved=SORTED * FLOAT * math.log2(n + 1) * n * centres)


def halo(around, candidates) -> Work:
    """Search for the halo (the rows around a cell) among candidates (`prediction.local.halos.nearest_rows`)."""
    considered = PROBES * min(CONSIDERED * around, candidates)
    return Work(kernel=considered, moved=FLOAT * (8 * considered + 10 * candidates))
