"""Committees with other query points than before: grown by points that new rows need, or joined with another's.

Messages about an earlier query set are lifted to the present one (`bcmdist.model.query_sets`): each partition stays as
it was absorbed, through the query set of its time, and partitions absorbed later speak about all points.
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.experts.contributions import lifted
from bcmdist.experts.message import Message
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.model import Model
from bcmdist.model.query_sets import EarlierQuery, QuerySets, appended, is_beginning, lift_between, remaining
from bcmdist.model.shared.query import Query
from bcmdist.storage.entry import RUNNING, Entry


def why_fixed(snapshot: Snapshot) -> str | None:
    """Why the query set of a model cannot change, in words; None if it can."""
    model, linearisation = snapshot.model, snapshot.facts.linearisation
    if not isinstance(model.shared, Query):
        return f"its shared variables are {model.shared.noun}, not function values at query points"
    if model.input_errors is not None:
        return "its inputs have errors"
    if linearisation.approximation == "ep":
        return "its messages are those of expectation propagation"
    if linearisation.linearise == RUNNING:
        return "its messages depend on their order"
    return None


def grown_to(snapshot: Snapshot, model: Model, most: int | None) -> Snapshot:
    """The snapshot with a model that has further query points (`Model.grown`); it remains to be committed.

    most : largest number of points, to be recorded
    """
    total = lifted(snapshot.committee.total, model.lift(len(snapshot.model.earlier)))
    facts: dict[str, Any] = {
        "linearised_at": None,
        "objective": None,
        "query_asked": model.shared.functions,
        "query_most": most,
        **_UNKNOWN,
    }
    return replace(snapshot.changed(Committee(total, model.shared.belief), **facts), model=model)


# Points are dropped where this changes no prediction by more than `LARGEST_LOSS` of its standard deviation, if they are
# at least `LEAST_DROPPED` of all.
LARGEST_LOSS, LEAST_DROPPED = 1e-3, 0.1


def without_needless(snapshot: Snapshot) -> Snapshot:
    """The snapshot without query points about which its rows have no information beyond that about the others, such as
    those of rows that have faded; it remains to be committed, or is the same object.

    Messages become those about the remaining points, with f at the others as its conditional mean. So partitions can be
    forgotten as before.
    """
    query, total = cast(Query, snapshot.model.shared), snapshot.committee.total
    if total.precision.shape[-1] != query.size:  # coupled processes
        return snapshot
    order = np.argsort(_shares(query, total.precision), kind="stable")
    fewest, most = 0, query.functions  # numbers of points that can, and cannot, be dropped
    while most - fewest > 1:
        middle = (fewest + most) // 2
        kept = remaining(query, np.sort(order[middle:]))
        fewest, most = (middle, most) if _loss(snapshot, kept) <= LARGEST_LOSS else (fewest, middle)
    if fewest < LEAST_DROPPED * query.functions:
        return snapshot
    through = snapshot.ledger.queries
    model = snapshot.model.reduced(remaining(query, np.sort(order[fewest:])), through)
    return grown_to(snapshot, model, snapshot.facts.query.query_most)


def _shares(query: Query, precision: FloatArray) -> FloatArray:
    """Precision that the messages add at each query point, (Q,), in units of its prior precision given the others."""
    Q = query.functions
    whole = precision.reshape(-1, query.size, query.size)[:, :Q, :Q].sum(axis=0)
    half = linalg.solve_lower(query.factor, np.eye(Q, order="F"))
    shares: FloatArray = np.einsum("ij,ij->j", half, whole @ half) / np.einsum("ij,ij->j", half, half)
    return shares


def _loss(snapshot: Snapshot, kept: Query) -> float:
    """Bound of the change of predictions, in their standard deviations, with the `kept` query points only.

    The length of the change of the posterior mean, or half the norm of the change of the posterior precision, whichever
    is larger.
    """
    total, belief = snapshot.committee.total, snapshot.committee.posterior
    lift = lift_between(cast(Query, snapshot.model.shared), kept)
    T, message = lift.matrix, lifted(total, lift)
    after = kept.belief(message.eta, message.precision)
    size = belief.factor.shape[-1]
    back = T @ message.precision @ T.T
    factors = np.broadcast_to(belief.factor, total.precision.shape).reshape(-1, size, size)
    changes = (back - total.precision).reshape(-1, size, size)
    norms = [np.linalg.norm(_between(factor, change)) for factor, change in zip(factors, changes, strict=True)]
    return max(belief.length(after.mean @ T.T - belief.mean), 0.5 * float(np.linalg.norm(norms)))


def _between(factor: FloatArray, change: FloatArray) -> FloatArray:
    """F^-1 D F^-T of a factor F and a symmetric D, (S, S) each."""
    half = linalg.solve_lower(np.asfortranarray(factor), np.array(change, order="F"))
    return linalg.solve_lower(np.asfortranarray(factor), np.array(half.T, order="F"))


# What was found out about the number of query points holds for the former ones.
_UNKNOWN = {"degrees_estimated": None, "halving_loss": None}


def capacity(snapshot: Snapshot) -> dict[str, int] | None:
    """Number of query points, of the first ones, of all query sets so far, and the limit if there is one; None for a
    committee that has only had one set."""
    model, most = snapshot.model, snapshot.facts.query.query_most
    if not model.earlier:
        return None
    found = {"points": model.shared.functions, "first": model.earlier[0].count, "sets": len(model.earlier) + 1}
    return found | ({} if most is None else {"most": most})


def joined(one: Snapshot, other: Snapshot, most: int | None) -> tuple[Model, Message, list[Entry], dict[str, Any]]:
    """Two committees of one kernel joined about the union of their query points.

    Points of `other` that those of `one` determine are left out (`query_sets.appended`).

    Parameters
    ----------
    most : largest number of query points; no limit by default

    Returns
    -------
    The model, the sum of all messages, the ledger, and facts to change.

    Raises
    ------
    InvalidOption
        `most` is less than the number of points of `one`.
    """
    first, second = cast(Query, one.model.shared), cast(Query, other.model.shared)
    if most is not None and most < first.functions:
        raise InvalidOption(
            f"--query-most: expected at least {first.functions}, the number of query points of {one.url}, got {most}; "
            "give more"
        )
    query = appended(first, second.points, most=most)
    a, b = len(one.model.earlier), len(other.model.earlier)
    sets = [*_chained(one.model, 0, query), *_chained(other.model, a + 1, query)]
    model = replace(one.model, shared=query, earlier=QuerySets(sets))
    total = lifted(one.committee.total, model.lift(a)) + lifted(other.committee.total, model.lift(a + 1 + b))
    ledger = [*one.ledger, *(replace(entry, query=entry.query + a + 1) for entry in other.ledger)]
    return model, total, ledger, {"query_asked": query.functions, "query_most": most, **_UNKNOWN}


def _chained(model: Model, start: int, query: Query) -> list[EarlierQuery]:
    """All query sets of a model, numbered from `start`; the present one is replaced by the joint one."""
    last = start + len(model.earlier)
    earlier = [replace(one, into=last if one.into is None else one.into + start) for one in model.earlier]
    replaced = cast(Query, model.shared)
    stored = None if is_beginning(replaced, query) else replaced
    return [*earlier, EarlierQuery(replaced.functions, None, stored)]
