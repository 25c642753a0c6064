"""Blobs: immutable bytes, named by their SHA-256 and checked against it when they are read.

    MODEL/blobs/<sha256>             arrays (.npy bytes) and ledger segments (`segment`)

Until it is committed, a blob belongs to the writer that stored it: another writer that stores the same content makes a
separate blob. Only blobs of the previous commit are named again. So no process removes a blob that another process is
about to name (see `pruning`).
"""

import contextlib
import functools
import hashlib
import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.errors import ModelDamaged
from bcmdist.storage.arrays import BLANKS, MOST_BLANKS, read_array
from bcmdist.storage.interface import Storage


@dataclass(frozen=True)
class BlobReference:
    """Reference to a stored array, sent to tasks in place of the array: model directory and hash of the blob."""

    url: str
    digest: str


# --- Methods of `ModelStore` ---


def put_arrays(store, arrays: Mapping[str, np.ndarray], *, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Store arrays as blobs; return their hashes by name.

    before : hashes by name of the previous commit's arrays; an unchanged array is not stored again
    """
    before = before or {}
    return {name: store._put_blob(npy_bytes(array), before.get(name)) for name, array in arrays.items()}


def get_array(store, digest) -> np.ndarray:
    """Return the array of a blob, checked against its hash."""
    return read_array(store._get_blob(digest), blob_label(store.storage, digest))


@contextlib.contextmanager
def transient(store, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, BlobReference]]:
    """Store arrays that tasks need temporarily; yield references by name, and remove the blobs at the end."""
    digests = store.put_arrays(arrays)
    try:
        yield {name: BlobReference(store.storage.url, digest) for name, digest in digests.items()}
    finally:
        for digest in digests.values():
            store.storage.remove(blob_name(digest))


def copy_blobs(store, other, digests: Iterable[str]) -> None:
    """Copy blobs of the model directory `other` into the new directory `store`, under the same names."""
    for digest in digests:
        store.storage.put_if_absent(blob_name(digest), other._get_blob(digest))


def discard_uncommitted(store) -> None:
    """Remove the blobs of an unfinished preparation, if there is no commit and no other process prepares one.

    The caller must hold a lease of commit 0, taken before it stored any blob.
    """
    left = store.storage.names("blobs")  # listed before leases are read: a later writer stores blobs after its lease
    if not store.numbers() and store.only_lease():
        for digest in left:
            store.storage.remove(blob_name(digest))


# --- Functions of a `Storage` ---


def put_blob(storage: Storage, data: bytes, before: str | None = None) -> str:
    """Store bytes in a new blob and return its hash; return the hash `before` if that blob has the same content.

    If the name is taken, 128 random blanks are appended, which change the hash. Readers of .npy and JSON ignore them.
    """
    digest = sha256(data)
    if digest == before or storage.put_if_absent(blob_name(digest), data):
        return digest
    with contextlib.suppress(ModelDamaged):  # pruned by others, or damaged: the content is stored again
        if before is not None and _without_blanks(get_blob(storage, before)) == data:
            return before
    blanks = bytes(BLANKS[bit == "1"] for bit in f"{uuid.uuid4().int:0{MOST_BLANKS}b}")
    return put_blob(storage, data + blanks)


def get_blob(storage: Storage, digest: str) -> bytes:
    """Return the bytes of a blob.

    Raises
    ------
    ModelDamaged
        The blob is missing, or its content does not match its hash.
    """
    try:
        data = storage.get(blob_name(digest))
    except FileNotFoundError as error:
        raise ModelDamaged(
            f"{blob_label(storage, digest)}: expected a file, found none; restore the directory from a copy"
        ) from error
    if sha256(data) != digest:
        raise ModelDamaged(
            f"{blob_label(storage, digest)}: expected the content of its checksum, found another ({len(data)} bytes); "
            "restore the directory from a copy"
        )
    return data


def blob_name(digest: str) -> str:
    """Return the name of a blob in its storage."""
    return f"blobs/{digest}"


def blob_label(storage: Storage, digest: str) -> str:
    """Return a description of a blob for error messages."""
    return f"{storage.url}: blob {digest[:12]}"


def npy_bytes(array: ArrayLike) -> bytes:
    """Serialise an array as a .npy file; raise an error for arrays of objects."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def canonical_json(value: Any) -> bytes:
    """Serialise a value as canonical JSON (sorted keys, no spaces, finite numbers), for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _without_blanks(blob: bytes) -> bytes:
    """Remove the 128 blanks that `put_blob` may have appended."""
    return blob[:-MOST_BLANKS] if not blob[-MOST_BLANKS:].strip(BLANKS) else blob


@contextlib.contextmanager
def canary(store) -> Iterator[Callable[[], str]]:
    """Write a temporary entry, the canary, and yield a probe: a function that reads the entry.

    The probe returns the entry's text on every machine that shares the directory.
    """
    name, text = f"canary/{uuid.uuid4().hex}", uuid.uuid4().hex
    store.storage.put_own(name, text.encode())
    try:
        yield functools.partial(_read_text, store.storage, name)
    finally:
        store.storage.remove(name)


def _read_text(storage: Storage, name: str) -> str:
    return storage.get(name).decode()
