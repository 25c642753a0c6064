"""Pruning: remove old commits, and the blobs that only they name.

There are no locks. These events may be concurrent with pruning, without loss:

- A writer is suspended while its commit number is pruned. The name of the record would be free again, and the writer's
  commit would seem to succeed although the newest commit does not descend from it. So before any record is removed,
  the largest number to remove is written permanently (MODEL/pruned/<number>). A commit checks its number against this
  entry after it has put its record: a name can only be free again once the entry exists, so that a writer that reuses
  the name sees the entry. A writer may be refused although it was first (its commit was continued by others and pruned
  before the check); when it loads the model, it finds its partitions in the ledger.
- A writer names an existing blob that is about to be removed. Each blob comes from one put and is never shared by
  content: if the name is taken, the same content gets another name (`blobs.put_blob`). Only blobs of the previous
  record are named again. That record stays while its successor can still be made: it is removed only when a later
  record exists, whose predecessor has the number that the writer wants. So a blob that is named by removed records only
  is not in use by any writer.
- A reader takes a lease of a commit that is being removed. The reader writes its lease, then checks whether the number
  is pruned; pruning writes the number, then reads the leases. At least one of them sees the other: either the commit
  stays, or the reader gets an error. `held` commits, of leases and aliases, keep their records and blobs until a later
  pruning.
- Another pruning runs. It removes the same things, in any order; removing twice has no further effect.
- A crash. Records of pruned numbers are not commits, whether or not they still exist; a later pruning removes them. The
  newest commit and its blobs are never removed. It is made durable before older commits are removed: its writer may not
  have done so yet, and a power cut could take both.

Unnamed blobs (of killed writers, or left by a previous pruning) and temporary files are removed only if there is no
lease. They are listed *before* the leases are read, and the leases before the records. A writer has a lease from before
it stores blobs until they are committed: so either the lease still exists, or the record does.
"""

import re
from collections.abc import Hashable
from typing import Any

from zict import LRU

from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.storage.cache import get_or_make, least_recently_used

BLOB_NAME = re.compile(r"[0-9a-f]{64}")
NAME_BYTES, NAMED_BYTES = 150, 2**24  # memory of one name, and of all names in the cache
_NAMED: LRU[Hashable, frozenset[str]] = least_recently_used(NAMED_BYTES, lambda names: NAME_BYTES * (1 + len(names)))


def prune(store, keep: int) -> dict[str, Any]:
    """Remove all but the newest `keep` commits of a `ModelStore`, and the blobs that only the removed commits name.

    Returns
    -------
    `kept` and `removed`, numbers of commits; `held`, leases and aliases by number of the commit; `blobs`, number of
    removed blobs; `tidied`, number of removed unnamed blobs and temporary files

    Raises
    ------
    InvalidOption
        `keep` is less than 1.
    ModelNotFound, ModelDamaged
    """
    if keep < 1:
        raise InvalidOption(
            f"keep: expected at least 1 commit, got {keep}; give 1 or more, since the newest is always kept"
        )
    storage = store.storage
    loose = {f"blobs/{name}" for name in storage.names("blobs")}
    loose |= {name for folder in ("blobs", "commits") for name in storage.temporary(folder)}
    every, before = store.recorded(), store.pruned()
    newest = [number for number in every if number > before]
    storage.settle("commits")
    if not newest:
        store.record(0)  # raises: a directory without commits
    if newest[:-keep]:
        storage.put_if_absent(store.pruned_name(newest[-keep - 1]), b"")
    pruned, held, leased = store.pruned(), store.held(), store.leased()
    every = store.recorded()
    doomed = [number for number in every if number <= pruned and number not in held]
    try:
        named = _named(store, [number for number in every if number not in doomed])
    except ModelDamaged:
        if store.pruned() > pruned:  # a concurrent pruning has gone further
            return prune(store, keep)
        raise
    blobs = _named(store, doomed, gone=True) - named
    for number in doomed:
        store.remove_record(number)
    for name in blobs:
        storage.remove(f"blobs/{name}")
    for number in store.numbered("pruned")[:-1]:
        storage.remove(store.pruned_name(number))
    for number in store.numbered("acknowledged")[:-1]:
        storage.remove(store.acknowledged_name(number))
    left = loose - {f"blobs/{name}" for name in blobs | _named(store, store.recorded())} if not leased else set()
    for name in left:
        storage.remove(name)
    return {
        "kept": [number for number in every if number not in doomed],
        "removed": doomed,
        "held": {str(number): holders for number, holders in held.items()},
        "blobs": len(blobs),
        "tidied": len(left),
    }


def _named(store, numbers, *, gone=False):
    """Return the names of all blobs of some commits; with `gone`, blobs to read may have been removed already."""
    found: set[str] = set()
    segments: set[str] = set()
    for number in numbers:
        try:
            record = store.record(number)
        except ModelNotFound:  # removed by a concurrent pruning
            continue
        found.update(_names_in(record))
        segments.update(record["segments"])
        cells = (record["facts"].get("fit") or {}).get("cells") or {}
        halos = None if cells.get("home") else cells.get("halos")  # those of another directory are its own
        if halos and halos not in segments:
            found.update(_read(gone, lambda halos=halos: [bytes(row).hex() for row in store.get_array(halos)]))
    return found.union(*(_read(gone, lambda segment=segment: _named_in(store, segment)) for segment in segments))


def _named_in(store, segment):
    """Return the names of blobs in the entries of a segment; cached, since segments are immutable."""
    return get_or_make(_NAMED, segment, lambda: frozenset(_blobs_of(store, segment)))


def _blobs_of(store, segment):
    entries = store.get_segment(segment) if store.summary(segment).blobs else []
    return (name for entry in entries for name in (entry.at, entry.state, entry.copy) if BLOB_NAME.fullmatch(name))


def _names_in(value):
    """Return all strings in a record that could be names of blobs; a string that is no blob's name does no harm."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str):
        return {value} if BLOB_NAME.fullmatch(value) else set()
    elif not isinstance(value, list):
        return set()
    return set().union(*map(_names_in, value))


def _read(gone, read):
    try:
        return read()
    except ModelDamaged:
        if not gone:
            raise
        return []
