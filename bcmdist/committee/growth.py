"""Committees with other query points than before: grown by points that new rows need, or joined with another's.

Messages about an earlier query set are lifted to the present one (`bcmdist.model.query_sets`): each partition stays as
it was absorbed, through the query set of its time, and partitions absorbed later speak about all points.
"""

from dataclasses import replace
from typing import cast

from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.experts.contributions import lifted
from bcmdist.experts.message import Message
from bcmdist.model.model import Model
from bcmdist.model.query_sets import EarlierQuery, QuerySets, appended, is_beginning
from bcmdist.model.shared.query import Query
from bcmdist.storage.ledger import RUNNING, Entry


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
    facts = {
        "linearised_at": None,
        "objective": None,
        "query_asked": model.shared.functions,
        "query_most": most,
        **_UNKNOWN,
    }
    return replace(snapshot.changed(Committee(total, model.shared.belief), **facts), model=model)


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


def joined(one: Snapshot, other: Snapshot, most: int | None) -> tuple[Model, Message, list[Entry], dict]:
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


def _chained(model, start, query) -> list[EarlierQuery]:
    """All query sets of a model, numbered from `start`; the present one is replaced by the joint one."""
    last = start + len(model.earlier)
    earlier = [replace(one, into=last if one.into is None else one.into + start) for one in model.earlier]
    replaced = cast(Query, model.shared)
    stored = None if is_beginning(replaced, query) else replaced
    return [*earlier, EarlierQuery(replaced.functions, None, stored)]
