"""Blobs: immutable bytes named by their content, and checked against that name when they are read.

    MODEL/blobs/<sha256>             arrays (.npy bytes) and ledger segments (JSON)

A blob belongs to who has put it, until it is committed: the same content again is another blob, but for what the commit
before has named. So nobody removes what somebody else is about to name (see `pruning`).
"""

import contextlib
import hashlib
import io
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.fields import BLANKS, MOST_BLANKS, read_array
from bcmdist.storage.interface import Storage


@dataclass(frozen=True)
class BlobReference:
    """What a task carries instead of an array: where a blob lies, and its hash."""

    url: str
    digest: str


# --- Of a `ModelStore` ---


def put_arrays(store, arrays: Mapping[str, np.ndarray], *, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Store arrays as blobs; their hashes by name.

    before : those of the commit before, which are not stored again where they are the same
    """
    before = before or {}
    return {name: store._put_blob(npy_bytes(array), before.get(name)) for name, array in arrays.items()}


def get_array(store, digest) -> np.ndarray:
    """The array of a blob, checked against its name."""
    return read_array(store._get_blob(digest), blob_label(store.storage, digest))


@contextlib.contextmanager
def transient(store, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, BlobReference]]:
    """References of arrays that tasks need for a moment, by name; their blobs are removed again."""
    digests = store.put_arrays(arrays)
    try:
        yield {name: BlobReference(store.storage.url, digest) for name, digest in digests.items()}
    finally:
        for digest in digests.values():
            store.storage.remove(blob_name(digest))


def copy_blobs(store, other, digests: Iterable[str]) -> None:
    """Copy blobs of another model directory into this, which is new, under the same names."""
    for digest in digests:
        store.storage.put_if_absent(blob_name(digest), other._get_blob(digest))


def discard_uncommitted(store) -> None:
    """Remove blobs where there is no commit, and nobody else works on one to come: what a preparation has left.

    Whoever calls this holds commit 0, since before any blob was put.
    """
    left = store.storage.names("blobs")  # before others are looked for: theirs would come after their leases
    if not store.numbers() and store.alone():
        for digest in left:
            store.storage.remove(blob_name(digest))


# --- Of a `Storage` ---


def put_blob(storage: Storage, data: bytes, before: str | None = None) -> str:
    """Store bytes under a name that nobody else has; or its name in the commit before, where they are the same.

    Blanks behind the data give them another name; readers of .npy and JSON do not see them.
    """
    digest = sha256(data)
    if digest == before or storage.put_if_absent(blob_name(digest), data):
        return digest
    if before is not None and _without_blanks(get_blob(storage, before)) == data:
        return before
    blanks = bytes(BLANKS[bit == "1"] for bit in f"{uuid.uuid4().int:0{MOST_BLANKS}b}")
    return put_blob(storage, data + blanks)


def get_blob(storage: Storage, digest: str) -> bytes:
    """The bytes of a blob.

    Raises
    ------
    ModelDamaged
        It is missing, or not what its name says.
    """
    try:
        data = storage.get(blob_name(digest))
    except FileNotFoundError as error:
        raise ModelDamaged(f"{blob_label(storage, digest)} is missing; restore the directory from a copy") from error
    if sha256(data) != digest:
        raise ModelDamaged(
            f"{blob_label(storage, digest)} does not match its checksum ({len(data)} bytes); restore the directory "
            "from a copy"
        )
    return data


def blob_name(digest: str) -> str:
    """Where a blob lies."""
    return f"blobs/{digest}"


def blob_label(storage: Storage, digest: str) -> str:
    """How errors name a blob."""
    return f"{storage.url}: blob {digest[:12]}"


def npy_bytes(array) -> bytes:
    """An array as the bytes of a .npy file; arrays of objects are refused."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def canonical_json(value) -> bytes:
    """A value as JSON in the one way that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Content hash."""
    return hashlib.sha256(data).hexdigest()


def _without_blanks(blob):
    """A blob without the 128 blanks that `put_blob` may have put behind it."""
    return blob[:-MOST_BLANKS] if not blob[-MOST_BLANKS:].strip(BLANKS) else blob
