"""Query sets that a committee had before: messages about them, as functions of the present shared variables.

A message about v_c = L_c^-1 f^c, the whitened values at an earlier query set, is a message about v = L^-1 f^q by

    E[v_c | v] = T v,     T = L_c^-1 k(X^c, X^q) L^-T,     eta = T' eta_c,     precision = T' precision_c T

(`Lift`). Where the earlier points are among the present ones, v_c is a function of v and this is exact: the partition
stays as it was absorbed, in the PITC model with its own query set (DESIGN: growing and merging across query sets).
Where they are the first of the present ones, T = [I 0]. A `Lift` to a set that lacks some of the earlier points takes
f at these points as its conditional mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
import numpy as np
import scipy.linalg

from bcmdist import linalg
from bcmdist.linalg.arrays import FloatArray, IntArray
from bcmdist.model.shared.belief import Belief, Factored
from bcmdist.model.shared.interface import Arrays
from bcmdist.model.shared.query import Query
from bcmdist.storage.arrays import check_array, require_arrays
from bcmdist.storage.fields import Count, CountFromOne, NotNegative, damaged

# A point is added to a query set only if the variance of f there, given the points before it, is above this share of
# its prior variance: of others, f is known to a thousandth of a prior standard deviation.
LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class EarlierQuery:
    """A query set through which some partitions were absorbed, before it was replaced."""

    count: int
    """number of its points"""
    into: int | None
    """number of the query set that replaced it: a larger one, or None for the present one"""
    stored: Query | None = None
    """the set; None where its points are the first of the set that replaced it"""
    gone: bool = False
    """whether its points are not known any more, since no partition was absorbed through it"""


@dataclass(frozen=True)
class Lift:
    """The linear map from the present shared variables to those of an earlier query set (module docstring)."""

    matrix: FloatArray
    """T, (S_c, S); the weights of the mean, which follow the query values, are the same in both"""
    exact: bool = False
    """whether v_c = T v, since the earlier points are among the present ones"""

    def after(self, other: "Lift") -> "Lift":
        """The map through two sets: this one from the second to the first, `other` from the third to the second."""
        return Lift(self.matrix @ other.matrix, self.exact and other.exact)

    def eta(self, eta: FloatArray) -> FloatArray:
        """T' eta for each process: (..., S_c) or, of coupled processes, (C S_c,) -> (..., S) or (C S,)."""
        T = self.matrix
        return (eta.reshape(-1, len(T)) @ T).reshape(*eta.shape[:-1], -1)

    def precision(self, precision: FloatArray) -> FloatArray:
        """T' precision T for each process: (..., S_c, S_c) or, of coupled processes, (C S_c, C S_c)."""
        T = self.matrix
        C = precision.shape[-1] // len(T)
        if C == 1:
            return T.T @ precision @ T
        blocks = np.tensordot(precision.reshape(C, len(T), C, len(T)), T, axes=(3, 0))  # (C, S_c, C, S)
        return np.tensordot(blocks, T, axes=(1, 0)).transpose(0, 3, 1, 2).reshape((C * T.shape[1],) * 2)

    def belief(self, belief: Belief) -> Factored:
        """The marginal belief about the earlier shared variables: mean T m, covariance I - T (I - Lambda^-1) T'."""
        T = self.matrix
        blocks = belief.factor.shape[-1] // T.shape[1]
        means = belief.mean.reshape(*belief.mean.shape[:-1], blocks, -1) @ T.T
        residual = np.zeros((len(T), 0)) if self.exact else _root(np.eye(len(T)) - T @ T.T)
        if blocks > 1:
            T, residual = (cast(FloatArray, np.kron(np.eye(blocks), one)) for one in (T, residual))
        factors = belief.factor.reshape(-1, *belief.factor.shape[-2:])
        found = np.stack([_marginal_factor(np.asfortranarray(L), T, residual) for L in factors])
        shape = (*belief.factor.shape[:-2], len(T), len(T))
        return Factored(means.reshape(*belief.mean.shape[:-1], -1), np.asfortranarray(found.reshape(shape)))


def _root(A: FloatArray) -> FloatArray:
    """W with W W' = A, for A (n, n) that is positive semidefinite up to rounding."""
    values, vectors = np.linalg.eigh(A)
    return cast(FloatArray, vectors * np.sqrt(np.maximum(values, 0.0)))


def _marginal_factor(factor: FloatArray, T: FloatArray, residual: FloatArray) -> FloatArray:
    """Cholesky factor of the precision of T v + residual u, from that of v (S, S).

    T is (S_c, S), residual (S_c, R); u is standard normal.

    U U' is the covariance, for the upper triangle U of U Q = [T L^-T, residual]. It is not formed, since its smallest
    eigenvalues, those of precise observations, would be lost by rounding.
    """
    half = linalg.solve_lower(factor, np.array(T.T, order="F")).T
    U = scipy.linalg.rq(np.hstack([half, residual]), mode="economic")[0]
    L = scipy.linalg.solve_triangular(U, np.eye(len(T)), lower=False).T
    return np.asfortranarray(L * np.sign(np.diagonal(L)))


def lift_between(earlier: Query, later: Query) -> Lift:
    """The map from the shared variables of `later` to those of `earlier`, which have the same kernel and mean."""
    B, P = earlier.functions, earlier.size - earlier.functions
    T = np.zeros((earlier.size, later.size))
    T[B:, later.functions :] = np.eye(P)
    if is_beginning(earlier, later):
        T[:B, :B] = np.eye(B)
        return Lift(T, exact=True)
    place = _places(earlier.points, later.points)
    same = place >= 0
    K = earlier.kernel.cross(earlier.points, later.points)
    K[same, place[same]] += min(earlier.jitter, later.jitter)
    right = linalg.solve_right_transposed(later.factor, np.asfortranarray(K))
    if earlier.jitter == later.jitter:
        right[same] = later.factor[place[same]]  # equal, without rounding
    T[:B, : later.functions] = linalg.solve_lower(earlier.factor, np.asfortranarray(right))
    return Lift(T, exact=bool(same.all()) and earlier.jitter == later.jitter)


def is_beginning(earlier: Query, later: Query) -> bool:
    """Whether the points of `earlier` are the first of `later`, with the same factor."""
    B = earlier.functions
    same = later.functions >= B and np.array_equal(earlier.points, later.points[:B])
    return bool(same and np.array_equal(np.tril(earlier.factor), np.tril(later.factor[:B, :B])))


def beginning(query: Query, count: int) -> Query:
    """The query set of the first `count` points."""
    return replace(query, points=query.points[:count], factor=np.asfortranarray(query.factor[:count, :count]))


def _places(points: FloatArray, among: FloatArray) -> FloatArray:
    """For each of some points (n, D), its row among others (m, D), or -1; rows are used once."""
    rows: dict[bytes, list[int]] = {}
    for row in reversed(range(len(among))):
        rows.setdefault((among[row] + 0.0).tobytes(), []).append(row)
    found = (rows.get((point + 0.0).tobytes()) for point in points)
    return np.array([place.pop() if place else -1 for place in found])


def appended(query: Query, points: FloatArray, *, most: int | None = None, share: float = LEAST_SHARE) -> Query:
    """The query set with further points, of those (n, D) that the set does not determine; the factor of the first
    points stays as it is.

    Points are chosen by pivoted Cholesky of their covariance given the set: each is the one whose f is least known.

    Parameters
    ----------
    most : largest number of points of the result; no limit by default
    share : a point is added only if its variance given the points before it is above this share of its prior variance
    """
    Q, points = query.functions, np.unique(np.asarray(points, dtype=float), axis=0)
    points = points[query.kernel.diagonal(points) > 0.0]  # elsewhere f is known: at 0 with a linear kernel
    room = len(points) if most is None else max(0, min(len(points), most - Q))
    B = linalg.solve_right_transposed(query.factor, np.asfortranarray(query.kernel.cross(points, query.points)))
    prior = query.kernel.diagonal(points)
    residual = prior - np.einsum("ij,ij->i", B, B)
    rows = np.zeros((len(points), Q + room), order="F")  # rows of the factor of the joint covariance
    rows[:, :Q] = B
    chosen: list[int] = []
    for column in range(Q, Q + room * (len(points) > 0)):
        pivot = int(np.argmax(residual / prior))
        if residual[pivot] <= share * prior[pivot] or pivot in chosen:
            break
        root = np.sqrt(residual[pivot] + query.jitter)
        cross = query.kernel.cross(points, points[pivot : pivot + 1])[:, 0]
        rows[:, column] = (cross - rows[:, :column] @ rows[pivot, :column]) / root
        rows[pivot, column] = root
        residual = residual - rows[:, column] ** 2
        residual[pivot] = -np.inf
        chosen.append(pivot)
    k = Q + len(chosen)
    factor = np.zeros((k, k), order="F")
    factor[:Q, :Q] = np.tril(query.factor)
    factor[Q:] = np.tril(rows[chosen, :k], Q)
    return replace(query, points=np.vstack([query.points, points[chosen]]), factor=factor)


def remaining(query: Query, kept: IntArray) -> Query:
    """The query set of some of its points, by their positions, ascending (k,)."""
    rows = np.tril(query.factor)[kept]
    factor = linalg.cholesky(np.asfortranarray(rows @ rows.T), name="covariance of the remaining query points")
    return replace(query, points=query.points[kept], factor=factor)


def unexplained(query: Query, X: FloatArray, share: float) -> IntArray:
    """Indices of the rows of X (n, D) with a variance of f given the query values above a share of the prior's."""
    prior, V = query.kernel.diagonal(X), np.empty((len(X), query.functions), order="F")
    query.fill(X, V)
    return np.flatnonzero(prior - np.einsum("ij,ij->i", V, V) > share * prior)


def shares_by_others(query: Query) -> FloatArray:
    """Variance of f at each query point given its values at the others, as a share of the prior variance, (Q,)."""
    inverse = linalg.inverse(np.array(query.factor, order="F"))
    return 1.0 / (np.diagonal(inverse) * (query.kernel.diagonal(query.points) + query.jitter))


# --- Storage ---


class StoredQuery(msgspec.Struct, omit_defaults=True):
    """One item of the fact `earlier` of a stored model."""

    points: CountFromOne
    into: Count | None
    """as in `EarlierQuery`"""
    jitter: NotNegative | None = None
    """of a set with points of its own, which are stored in arrays"""
    gone: bool = False


class QuerySets(tuple[EarlierQuery, ...]):
    """The earlier query sets of a model, in the order of their numbers; empty for a committee that never had others."""

    __slots__ = ()

    def query(self, number: int, present: Query) -> Query:
        """The set of this number. `present`: the present set."""
        stored = self[number].stored
        return stored or beginning(self._query_or_present(self._end(number), present), self[number].count)

    def lift(self, number: int, present: Query) -> Lift:
        """The map from the present shared variables to those of the set of this number."""
        end = self._end(number)
        step = lift_between(self.query(number, present), self._query_or_present(end, present))
        return step if end is None else step.after(self.lift(end, present))

    def of(self, numbers: Iterable[int]) -> "QuerySets":
        """These sets, of which only those of some numbers, and those on the way from them to the present one, keep
        their points."""
        needed = set[int]()
        for start in numbers:
            number: int | None = start
            while number is not None and number < len(self):
                needed.add(number)
                number = self._end(number)
        return QuerySets(
            one if number in needed else replace(one, stored=None, gone=True) for number, one in enumerate(self)
        )

    def lacks(self, number: int) -> bool:
        """Whether the points of the set of this number are not known any more."""
        return number < len(self) and self[number].gone

    def _end(self, number: int) -> int | None:
        """Number of the first set with points of its own that followed this one; None: the present one."""
        into = self[number].into
        while into is not None and self[into].stored is None:
            into = self[into].into
        return into

    def _query_or_present(self, number: int | None, present: Query) -> Query:
        return present if number is None else self.query(number, present)

    def to_arrays(self) -> tuple[Arrays, list[dict[str, Any]]]:
        """Arrays and JSON-ready facts for `query_sets_from_arrays`."""
        arrays: Arrays = {}
        facts = []
        for number, earlier in enumerate(self):
            jitter = None
            if earlier.stored:
                jitter = float(earlier.stored.jitter)
                names = _array_names(number)
                arrays |= dict(zip(names, (earlier.stored.points, earlier.stored.factor), strict=True))
            facts.append(msgspec.to_builtins(StoredQuery(earlier.count, earlier.into, jitter, earlier.gone)))
        return arrays, facts


def _array_names(number: int) -> tuple[str, str]:
    return f"earlier_points_{number}", f"earlier_factor_{number}"


def query_sets_from_arrays(arrays: Arrays, facts: Sequence[StoredQuery], present: Query, where: str) -> QuerySets:
    """Restore the result of `QuerySets.to_arrays`, after checks.

    Raises
    ------
    ModelDamaged
    """
    found: list[EarlierQuery] = []
    for number in reversed(range(len(facts))):
        one, later = facts[number], present.functions
        if one.into is not None:
            if not number < one.into < len(facts):
                raise damaged(
                    where, f"a number from {number + 1} to {len(facts) - 1} as into of earlier", f"{one.into}"
                )
            later = facts[one.into].points
        stored = None if one.jitter is None else _stored_query(arrays, number, one.points, one.jitter, present, where)
        if stored is None and not one.gone and one.points > later:
            raise damaged(where, f"at most {later} points of earlier query set {number}", f"{one.points}")
        found.append(EarlierQuery(one.points, one.into, stored, one.gone))
    return QuerySets(reversed(found))


def _stored_query(arrays: Arrays, number: int, count: int, jitter: float, like: Query, where: str) -> Query:
    names = _array_names(number)
    require_arrays(arrays, names, where)
    points, factor = (arrays[name] for name in names)
    check_array(points, where, names[0], shape=(count, like.inputs))
    check_array(factor, where, names[1], shape=(count, count))
    query = replace(like, points=points, factor=np.asfortranarray(factor), jitter=jitter)
    with np.errstate(all="ignore"):
        query.check(where)
    return query
