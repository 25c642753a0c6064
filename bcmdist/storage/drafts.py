"""Drafts: records that tasks can read before they are committed.

A draft is the record that the next commit may get, stored as a blob. No other record names it: if its process dies, the
newest commit is the one before, and pruning removes the draft like other unnamed blobs. Its arrays and segments are
stored for the commit, which names them too. The functions are methods of `ModelStore`.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_name, sha256
from bcmdist.storage.records import read_record, record_text


@contextlib.contextmanager
def draft(store, number: int, **contents: Any) -> Iterator[str]:
    """A context in which the record that commit `number` may get is stored, and the hash of its blob.

    contents : as of `ModelStore.commit`, except `parent`
    """
    summaries = [store.summary(segment) for segment in contents["segments"]]
    digest = store._put_blob(record_text(number, **contents, summaries=summaries))
    try:
        yield digest
    finally:
        store.storage.remove(blob_name(digest))


def record_of(store, reference) -> dict[str, Any]:
    """Return the record of a reference to a commit or a draft, checked.

    Raises
    ------
    ModelDamaged
        The record at this number has another hash: the machine sees another model under the same path.
    """
    if reference.draft:
        return read_record(reference.number, store._get_blob(reference.digest), store.storage.url)
    text = store.record_bytes(reference.number)
    found = sha256(text)
    if found != reference.digest:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{found[:12]}; this machine sees another model under the same path: use a shared one"
        )
    return read_record(reference.number, text, store.storage.url)
