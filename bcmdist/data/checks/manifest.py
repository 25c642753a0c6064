"""Manifests: the chunks of an array with length and hash, so that lost or altered chunks are detected.

    GROUP/X/manifest/00000000      chunks whose first index is below `INDICES`; the next ones are in the next file

A manifest file ("part") is a line with the SHA-256 of the rest, then JSON: {"c/3/0": [length, SHA-256]}, by chunk name
within the array.

Zarr reads a missing chunk as fill values, and a chunk with flipped bits may decode to other numbers. The attribute
`MANIFEST` of a group lists the arrays that have a manifest, with the number of rows covered. The writer of the chunks
writes the manifest (`writing`), and `checked_store` compares. Rows appended by other software are not covered. Parts
are small, and a reader loads only those for its rows. Without a manifest, what a fit read first is stored with the
model, as a table.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bcmdist.errors import CorruptChunk

# Attribute of a group: arrays that have a manifest, with the number of rows that it covers.
MANIFEST = "bcmdist_manifest"
INDICES = 256


class Chunk(NamedTuple):
    """Length and hash of a stored chunk: of the bytes on disk, not the numbers."""

    length: int
    digest: str
    """SHA-256"""


def chunk_of(data) -> Chunk:
    """Return the length and hash of the bytes of a chunk."""
    return Chunk(len(data), hashlib.sha256(data).hexdigest())


def compare(found: Chunk, expected: Chunk, where: str) -> None:
    """Raise `CorruptChunk` if a chunk differs from the expected one."""
    if found.length != expected.length:
        raise CorruptChunk(f"{where}: {found.length} of {expected.length} bytes; restore it from a copy")
    if found != expected:
        raise CorruptChunk(
            f"{where}: its hash differs, expected {expected.digest[:12]}, got {found.digest[:12]}; restore it from a "
            "copy, or, if it was changed on purpose, write the data set again with bcmdist"
        )


def first_index(name: str) -> int:
    """Return the index of a chunk along the rows, from its name within its array: `c/3/0`, `3.0`, `3/0`."""
    number = re.search(r"\d+", name)
    return int(number[0]) if number else 0


def part_key(array: str, key: str) -> str:
    """Return the key of the manifest part that lists a chunk."""
    return f"{array}/manifest/{first_index(key.removeprefix(array)) // INDICES:08d}"


def encode(chunks: Mapping[str, Chunk]) -> bytes:
    """Encode a manifest part: chunks by their names within the array."""
    listed = json.dumps(chunks, sort_keys=True, indent=0).encode()
    return hashlib.sha256(listed).hexdigest().encode() + b"\n" + listed


@functools.lru_cache(maxsize=64)
def decode(text: bytes, where: str) -> dict[str, Chunk]:
    """Decode a manifest part.

    Raises
    ------
    CorruptChunk
        The part itself is damaged.
    """
    try:
        checksum, _, listed = text.partition(b"\n")
        if hashlib.sha256(listed).hexdigest().encode() != checksum:
            raise ValueError("its checksum differs")
        return {name: Chunk(*chunk) for name, chunk in json.loads(listed).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptChunk(f"{where}: expected part of a manifest ({error}); restore it from a copy") from error


def to_table(chunks: Mapping[str, Chunk]) -> np.ndarray:
    """Return chunks by key as an array of text lines, (n,) bytes."""
    return np.array([f"{key} {chunk.length} {chunk.digest}" for key, chunk in sorted(chunks.items())], dtype="S")


def from_table(table: np.ndarray) -> dict[str, Chunk]:
    """Invert `to_table`."""
    lines = (line.decode().rsplit(" ", 2) for line in table.tolist())
    return {key: Chunk(int(length), digest) for key, length, digest in lines}
