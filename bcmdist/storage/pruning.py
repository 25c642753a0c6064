"""Pruning: old commits go, and the blobs that only they name.

Nobody waits for anybody. What may happen at the same time, and why nothing is lost:

- A writer that has slept while its number was pruned. The number would be free again, and its commit would count
  as made although the newest one knows nothing of it. So before any record goes, the largest number that goes is
  written down for good (MODEL/pruned/<number>), and a commit of a number up to it is refused, before and after
  its record is put: the name of a record can only have come free once that is written, so that who puts it into
  a freed place sees it afterwards. Who is refused although he was first (others have gone on from his commit,
  and it was pruned before he looked again) loads the model and finds himself in the ledger.
- A writer that names a blob again that is about to go. Blobs are made by one put each and never found: where the
  name is taken the same content gets another one (`ModelStore`), and only what the record before names is named
  again. That record stays while its successor can still be made: it goes only when a later one exists, whose
  predecessor has the number that the writer wants. So a blob that goes, which a removed record named and no
  remaining one, is in nobody's hands.
- A reader that takes a lease of a commit while it goes. He writes his lease, then looks whether the number is
  pruned; pruning writes the number, then looks for leases. One of them sees the other: either the commit stays,
  or the reader is told that it is gone. `held` commits keep their records and blobs until a later pruning.
- Another pruning. It does the same, in any order: removing twice is removing once.
- A crash. Records of pruned numbers are no commits, whether they are still there or not; a later pruning removes
  what is left. The newest commit, and its blobs, are never touched; it is durable before it makes another one old
  (its writer may not have got as far as this, and a power cut would take both).

Blobs nobody names (of writers that were killed, of a pruning that was) and temporary files are removed only when
nobody has a lease. They are listed *before* the leases are read, and these before the records: a writer, who has one
while he puts blobs and until they are committed, either still has it, or his record is there.
"""

import re
from collections.abc import Hashable

from zict import LRU

from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.storage.cache import get_or_make, least_recently_used

BLOB_NAME = re.compile(r"[0-9a-f]{64}")
NAME_BYTES, NAMED_BYTES = 150, 2**24  # of a name in memory, and of all that are kept
_NAMED: LRU[Hashable, frozenset[str]] = least_recently_used(NAMED_BYTES, lambda names: NAME_BYTES * (1 + len(names)))


def prune(store, keep: int) -> dict:
    """Remove all but the newest `keep` commits of a `ModelStore`, and what only they name.

    Returns
    -------
    `kept` and `removed`, numbers of commits; `held`, those that stay because somebody works with them, by number;
    `blobs`, how many were removed; `tidied`, how many blobs and temporary files without an owner

    Raises
    ------
    InvalidOption
        `keep` is less than 1.
    ModelNotFound, ModelDamaged
    """
    if keep < 1:
        raise InvalidOption(f"keep: expected at least 1 commit, got {keep}; the newest cannot be pruned")
    storage = store.storage
    loose = {f"blobs/{name}" for name in storage.names("blobs")}
    loose |= {name for folder in ("blobs", "commits") for name in storage.temporary(folder)}
    newest = [number for number in store.recorded() if number > store.pruned()]
    storage.settle("commits")
    if not newest:
        store.record(0)  # raises: a directory without commits
    if newest[:-keep]:
        storage.put_if_absent(store.pruned_name(newest[-keep - 1]), b"")
    pruned, held = store.pruned(), store.held()
    every = store.recorded()
    doomed = [number for number in every if number <= pruned and number not in held]
    try:
        named = _named(store, [number for number in every if number not in doomed])
    except ModelDamaged:
        if store.pruned() > pruned:  # somebody prunes beside us, and further
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
    left = loose - {f"blobs/{name}" for name in blobs | _named(store, store.recorded())} if not held else set()
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
    """Names of all blobs that commits name; `gone`: what they name may have been removed already."""
    found: set[str] = set()
    segments: set[str] = set()
    for number in numbers:
        try:
            record = store.record(number)
        except ModelNotFound:  # pruned by somebody else
            continue
        found.update(_names_in(record))
        segments.update(record["segments"])
        halos = ((record["facts"].get("fit") or {}).get("cells") or {}).get("halos")
        if halos and halos not in segments:
            found.update(_read(gone, lambda halos=halos: [bytes(row).hex() for row in store.get_array(halos)]))
    return found.union(*(_read(gone, lambda segment=segment: _named_in(store, segment)) for segment in segments))


def _named_in(store, segment):
    """Names of blobs in the entries of a segment, which never change: read once while one model commits often."""
    return get_or_make(_NAMED, segment, lambda: frozenset(_blobs_of(store.get_segment(segment))))


def _blobs_of(entries):
    return (name for entry in entries for name in (entry.at, entry.state) if BLOB_NAME.fullmatch(name))


def _names_in(value):
    """All texts in a record that could be names of blobs; what is not one does no harm."""
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
