"""Manifests: which chunks an array has, with length and hash, so that one that is lost or altered is missed.

    GROUP/X/manifest/00000000      chunks whose first index is below `INDICES`; the next ones in the next file

A part is a line with the SHA-256 of what follows, and JSON: {"c/3/0": [length, SHA-256]} by name within the array.

Zarr reads a chunk that is not there as fill values and one with flipped bits as other numbers. The attribute
`MANIFEST` of a group names the arrays that have a manifest and the rows it speaks of; whoever writes their chunks
writes it (`dataset`), and `checked` compares. Rows that other software has added are beyond it. Parts are small: a
reader takes those of the rows it wants. Where there is no manifest, what a fit has read first is kept with the model,
as a table.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bcmdist.errors import CorruptChunk

# Attribute of a group: arrays that have a manifest, with the number of their rows that it speaks of.
MANIFEST = "bcmdist_manifest"
INDICES = 256


class Chunk(NamedTuple):
    """A stored chunk: the bytes on disk, not the numbers."""

    length: int
    digest: str
    """SHA-256"""


def chunk_of(data) -> Chunk:
    """Length and hash of the bytes of a chunk."""
    return Chunk(len(data), hashlib.sha256(data).hexdigest())


def compare(found: Chunk, expected: Chunk, where: str) -> None:
    """Raise `CorruptChunk` where a chunk is not the one that is expected."""
    if found.length != expected.length:
        raise CorruptChunk(f"{where}: {found.length} of {expected.length} bytes; restore it from a copy")
    if found != expected:
        raise CorruptChunk(
            f"{where}: its hash differs, expected {expected.digest[:12]}, got {found.digest[:12]}; restore it from a "
            "copy, or, if it was changed on purpose, write the data set again with bcmdist"
        )


def first_index(name: str) -> int:
    """Index along the rows of a chunk, by its name within its array: `c/3/0`, `3.0`, `3/0`."""
    number = re.search(r"\d+", name)
    return int(number[0]) if number else 0


def part_key(array: str, key: str) -> str:
    """Key of the part of a manifest that lists a chunk."""
    return f"{array}/manifest/{first_index(key.removeprefix(array)) // INDICES:08d}"


def encode(chunks: Mapping[str, Chunk]) -> bytes:
    """Text of a part: chunks by their names within the array."""
    listed = json.dumps(chunks, sort_keys=True, indent=0).encode()
    return hashlib.sha256(listed).hexdigest().encode() + b"\n" + listed


@functools.lru_cache(maxsize=64)
def decode(text: bytes, where: str) -> dict[str, Chunk]:
    """The chunks that a part lists.

    Raises
    ------
    CorruptChunk
        The part is damaged itself.
    """
    try:
        checksum, _, listed = text.partition(b"\n")
        if hashlib.sha256(listed).hexdigest().encode() != checksum:
            raise ValueError("its checksum differs")
        return {name: Chunk(*chunk) for name, chunk in json.loads(listed).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptChunk(f"{where}: expected part of a manifest ({error}); restore it from a copy") from error


def to_table(chunks: Mapping[str, Chunk]) -> np.ndarray:
    """Chunks by key as an array of lines, (n,) bytes."""
    return np.array([f"{key} {chunk.length} {chunk.digest}" for key, chunk in sorted(chunks.items())], dtype="S")


def from_table(table: np.ndarray) -> dict[str, Chunk]:
    """What `to_table` was given."""
    lines = (line.decode().rsplit(" ", 2) for line in table.tolist())
    return {key: Chunk(int(length), digest) for key, length, digest in lines}
