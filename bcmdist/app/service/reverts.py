"""Reverts of a model by requests, each made once.

    ROWS/<identity of the model>/<hash of key>.revert.json         what was asked under an idempotency key
    ROWS/<identity of the model>/<hash of key>.revert-0001.json    the commit that an attempt follows
    ROWS/<identity of the model>/<hash of key>.reverted.json       the answer, once the revert is committed

An attempt is recorded before its commit, whose number is then known: the next one. On retry, also after the process
died or by another service of the same directory, either the newest commit is still the one that the attempt follows,
and it is made; or another one has that number. If its state is the one to return to, the revert was made; if not,
another writer was first, and the next attempt follows the newest commit.
"""

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture, opened
from bcmdist.app.service.answers import Refused
from bcmdist.app.service.inbox import hashed
from bcmdist.app.service.loaded import newest_version
from bcmdist.errors import ChunkConflict, CommitConflict, ModelNotFound
from bcmdist.storage.interface import Storage

TRIES = 5  # attempts; each fails only if another writer commits at that moment


def revert(
    storage: Storage, key: str, asked: int | str, model: GBCM | Mixture, number_of: Callable[[], int]
) -> tuple[dict, bool, GBCM | Mixture | None]:
    """Return a model to an earlier commit, once for each key.

    Parameters
    ----------
    storage : storage of the records of requests to this model
    asked : the commit as the request names it
    model : the newest state
    number_of : returns the number of this commit; called for the first request under the key only

    Returns
    -------
    The answer, the same for the same request; whether it was made before; and the new state if it was made now

    Raises
    ------
    InvalidOption, ModelNotFound, CommitConflict
    ChunkConflict
        The key was used with another commit.
    Refused
        It cannot be known whether the revert was made.
    """
    name = hashed(key)
    request = _stored(storage, f"{name}.revert.json")
    if request is None:
        request = _first(storage, f"{name}.revert.json", {"asked": str(asked), "to": _checked(model, number_of())})
    if request["asked"] != str(asked):
        raise ChunkConflict(
            "Idempotency-Key: expected the commit that came under this key before, got another; give a new request a "
            "key of its own"
        )
    left = TRIES
    for attempt in itertools.count(1):
        if receipt := _stored(storage, f"{name}.reverted.json"):
            return receipt, True, None
        found = newest_version(model.url)
        recorded = f"{name}.revert-{attempt:04d}.json"
        before = _first(storage, recorded, {"commit": found.number, "digest": found.digest})
        after: GBCM | Mixture | None = None
        if found.number > before["commit"]:  # it was made, or another writer was first
            with opened(model.url) as newest:
                made = _made(newest, before["commit"] + 1, request["to"])
        elif [found.number, found.digest] == [before["commit"], before["digest"]]:
            if not left:
                raise CommitConflict("revert: expected to write the next commit, others were first; send it again")
            left -= 1
            try:
                with opened(model.url) as newest:
                    made = after = newest.revert(request["to"])
            except CommitConflict:
                made = _made(model, before["commit"] + 1, request["to"])
        else:
            made = None  # the directory was replaced by an older copy
        if made is not None:
            receipt = {"to": request["to"], "commit": made.commit, **_figures(made)}
            return _first(storage, f"{name}.reverted.json", receipt), after is None, after
    raise AssertionError("the last attempt returns or raises")


def _checked(model, number) -> int:
    """Return the number of a commit to return to, which must exist and not be the newest."""
    if number >= model.commit:
        raise Refused(
            422, "InvalidOption", f"to: expected a commit before the newest, {model.commit}, got {number}; name another"
        )
    with opened(model.url, commit=number):
        return number


def _made(model, number, to) -> GBCM | Mixture | None:
    """Return commit `number` if it has the state of commit `to`, otherwise None.

    Raises
    ------
    Refused
        One of them was pruned.
    """
    try:
        with opened(model.url, commit=number) as found, opened(model.url, commit=to) as earlier:
            one, other = ([one.snapshot for one in _committees(each)] for each in (found, earlier))
            return found if all(map(_same, one, other)) else None
    except ModelNotFound as error:
        raise Refused(
            409,
            "CommitConflict",
            f"Idempotency-Key: expected commits {to} and {number}, which show whether this was done before, found one "
            "pruned; look at the history of the model, and ask under another key",
        ) from error


def _committees(model) -> list[GBCM]:
    return list(model.members) if isinstance(model, Mixture) else [model]


def _same(one, other) -> bool:
    """Whether two snapshots have absorbed the same partitions with the same messages."""
    totals = zip(*((each.committee.total.eta, each.committee.total.precision) for each in (one, other)), strict=True)
    return one.ledger == other.ledger and all(np.array_equal(*pair) for pair in totals)


def _figures(model) -> dict[str, Any]:
    snapshot = model.predictive.snapshot
    return {"rows": snapshot.committee.total.rows, "partitions": len(snapshot.ledger)}


def _stored(storage, name) -> dict | None:
    try:
        return json.loads(storage.get(name))
    except FileNotFoundError:
        return None


def _first(storage, name, value) -> dict:
    """Store a value durably under a name; return the value that is there if the name is taken."""
    return value if storage.put_if_absent(name, json.dumps(value).encode()) else json.loads(storage.get(name))
