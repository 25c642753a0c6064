"""Work: what the parts of a fit compute, counted from their formulas, for n rows, Q query points and D inputs.

What grows with n or Q alone is left out, and so are the row-wise functions of likelihoods. Searches end when they end:
how often they step is an estimate, of several data sets none of which is a benchmark of plans.
"""

import math
from dataclasses import dataclass, fields

from bcmdist.prediction.local.halos import CONSIDERED, PROBES
from bcmdist.runtime.memory import FLOAT

# Steps of a search for the mode of counts or classes, and factors on the way (near the mode they are used again); of
# expectation propagation sweeps, each with a factor and an inverse.
MODE_STEPS, MODE_FACTORS = 7, 3
SWEEPS = 30
# Numbers that sorting by two keys moves for each, times the logarithm of how many there are: about 100 ns for 1000.
SORTED = 30


@dataclass(frozen=True)
class Work:
    """Units of work of each kind; they add, and multiply by numbers."""

    factor: float = 0.0
    """flops of Cholesky factors: n^3 / 3"""
    solve: float = 0.0
    """flops of triangular systems: n^2 for each column"""
    product: float = 0.0
    """flops of symmetric products W'W: S^2 for each row"""
    inverse: float = 0.0
    """flops of inverses by their factors: 2 n^3 / 3"""
    kernel: float = 0.0
    """covariances k(x, z), all at once"""
    blocks: float = 0.0
    """covariances by blocks of columns: of rows among themselves half of them"""
    gradient: float = 0.0
    """covariances with their share of a gradient in the hyper-parameters"""
    moved: float = 0.0
    """bytes that element-wise operations read and write"""
    dotted: float = 0.0
    """bytes of matrices that are multiplied by a vector"""

    def __add__(self, other: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    def __rmul__(self, times: float) -> "Work":
        return Work(*(times * a for a in self.counts))

    @property
    def counts(self) -> tuple[float, ...]:
        """In the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def flops(self, inputs) -> float:
        """Of BLAS and LAPACK, and of the distances of covariances; the rest is bound by memory."""
        dense = self.factor + self.solve + self.product + self.inverse + 2.0 * self.dotted / FLOAT
        return dense + 2.0 * (inputs + 2) * (self.kernel + self.blocks + 3.0 * self.gradient)


def factored(n) -> Work:
    """I + root K root (new), or K as it is, and its Cholesky factor."""
    return Work(factor=n**3 / 3, moved=3 * FLOAT * n**2)


def inverted(n) -> Work:
    """A factor, and the inverse by it."""
    return factored(n) + Work(inverse=2 * n**3 / 3)


def mode(n) -> Work:
    """The mode of rows with a full covariance matrix: products with it for a step, its line and its gap."""
    return MODE_FACTORS * factored(n) + Work(dotted=(5 * MODE_STEPS + 4) * FLOAT * n**2)


def evidence(n, *, exact, processes=1) -> Work:
    """The log evidence of a block with its gradient (`experts.evidence`)."""
    K = Work(gradient=n**2, moved=6 * FLOAT * n**2)
    if exact:
        return K + inverted(n) + Work(moved=(2 + 2 * processes) * FLOAT * n**2)
    return K + processes * (mode(n) + inverted(n) + Work(dotted=4 * FLOAT * n**2, moved=8 * FLOAT * n**2))


def left_out(n, *, exact, processes=1) -> Work:
    """Rows of a neighbourhood left out one by one (`learning.left_out.density`)."""
    K = Work(kernel=n**2, moved=8 * FLOAT * n**2)
    return K + (factored(n) if exact else processes * (mode(n) + inverted(n)))


def design(n, Q) -> Work:
    """The whitened design k(X, X^q) L^-T of rows."""
    return Work(blocks=n * Q, solve=n * Q**2, moved=2 * FLOAT * n * Q)


def residual(n, Q) -> Work:
    """What the shared variables leave of the covariance of some rows."""
    return Work(blocks=n**2 / 2, product=n**2 * Q, moved=2 * FLOAT * n**2)


def own_mode(n) -> Work:
    """The mode of rows under the prior of their own, whose covariance serves for their residual, too."""
    return Work(kernel=n**2, blocks=-(n**2) / 2, moved=6 * FLOAT * n**2) + mode(n)


def message(n, Q, *, exact, copies=1, ep=False, own=True) -> Work:
    """A partition's message (`experts.expert`), and its sum with another.

    Parameters
    ----------
    exact : of Gaussian rows; else linearised at a mode
    copies : matrices of an expert, of as many classes
    ep : whether by expectation propagation
    own : whether at its own mode, or given the shared values
    """
    rows = design(n, Q) + residual(n, Q)
    site = copies * (factored(n) + Work(solve=n**2 * Q))
    said = copies * Work(product=n * Q**2, moved=FLOAT * (2 * n * Q + 4 * Q**2))
    if exact:
        return rows + site + said
    sweeps = SWEEPS * (inverted(n) + Work(dotted=4 * FLOAT * n**2))
    return rows + copies * (sweeps if ep else own_mode(n) if own else mode(n)) + site + said


def message_apart(n, Q, *, exact, copies=1) -> Work:
    """A message of rows each with a residual of its own (fitc, sor); of classes the mode of all takes one matrix."""
    step = Work(product=copies**2 * n * Q**2, factor=(copies * Q) ** 3 / 3, moved=2 * copies * FLOAT * n * Q)
    said = copies * Work(product=n * Q**2, moved=FLOAT * (2 * n * Q + 4 * Q**2))
    return design(n, Q) + said + (Work() if exact else MODE_FACTORS * step)


def left_out_of_committee(n, k, Q, *, exact) -> Work:
    """k rows of a partition, as a committee predicts each that has not absorbed it: of other than Gaussian rows all
    (`prediction.leave_one_out`, `prediction.left_out_rows`)."""
    rows = design(n, Q) + residual(n, Q) + factored(n)
    if exact:
        return rows + Work(solve=n**2 * (2 * Q + k) + 2 * k * Q**2)
    return rows + own_mode(n) + Work(solve=n**2 * (2 * Q + n) + 2 * n * Q**2)


def local_expert(n, k, Q, *, exact, copies=1) -> Work:
    """A local expert of n rows, and what it predicts at k rows (`prediction.local.expert`)."""
    search = factored(n) if exact else copies * (mode(n) + factored(n))
    at = design(k, Q) + Work(kernel=n * k, product=4 * n * k * Q, solve=copies * (2 * n**2 * k + k * Q**2))
    return design(n, Q) + residual(n, Q) + search + at + Work(moved=2 * FLOAT * n * Q)


def halving(n, k, Q) -> Work:
    """What k rows of a local expert lose with half of the query points (`prediction.local.halving`)."""
    belief = Work(factor=(Q / 2) ** 3, inverse=2 * Q**3 / 3 + 2 * (Q / 2) ** 3)
    half = Work(solve=n**2 * Q / 2, product=n * (Q / 2) ** 2, moved=4 * FLOAT * n * Q)
    return belief + half + Work(solve=4 * n**2 * k + 2 * k * Q**2, product=6 * n * k * Q)


def nearest(n, centres) -> Work:
    """Distances of rows to some centres, and those of each in their order (`learning.blocks.tasks`)."""
    return Work(kernel=n * centres, moved=SORTED * FLOAT * math.log2(n + 1) * n * centres)


def halo(around, candidates) -> Work:
    """The halo of a cell among the candidates (`prediction.local.halos.nearest_rows`)."""
    considered = PROBES * min(CONSIDERED * around, candidates)
    return Work(kernel=considered, moved=FLOAT * (8 * considered + 10 * candidates))
