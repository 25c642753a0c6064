"""A Zarr store that checks every chunk, and raises an error naming the key of a missing or corrupt chunk.

    path inside the root? -> exists? -> length and hash as in the manifest? -> decodes to the declared size? -> zarr

Every byte that zarr decodes is read through this store once, so it is the byte that was checked. Missing chunks never
become fill values. For an array without a manifest, `seen` records what was read, for comparison with later reads.
"""

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, WrapperStore

from bcmdist.data.checks.encoding import Encoding, encoding_of
from bcmdist.data.checks.manifest import MANIFEST, Chunk, chunk_of, compare, decode, encode, first_index, part_key
from bcmdist.errors import CorruptChunk, MissingChunk, UnsafeData

METADATA = {"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"}
LARGEST_METADATA_BYTES = 2**26
LONGEST_NAME = 255  # of a file, on all common file systems
# Cache for shards of which parts were read: each shard is fetched and compared as a whole.
SHARDS_BYTES = 2**27


class CheckedStore(WrapperStore[Store]):
    """A store that checks the values it returns, as described above. Each reader opens its own, with fresh manifests.

    `place` names a store that is not a directory in errors. `get` raises `MissingChunk`, `CorruptChunk`, `UnsafeData`.
    """

    def __init__(self, store: Store, place: str = ""):
        super().__init__(store)
        self.root = os.path.realpath(store.root) if isinstance(store, LocalStore) else None
        self._place = place or self.root or str(store)
        self.seen: dict[str, Chunk] = {}
        """chunks read from arrays without a manifest, by key"""
        self.written: dict[str, Chunk] = {}
        self._documents: dict[str, dict] = {}
        self._encodings: dict[str, Encoding] = {}
        self._parts: dict[str, dict[str, Chunk]] = {}
        self._shards: dict[str, Buffer] = {}

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the checked bytes of a key."""
        if key.rpartition("/")[2] in METADATA:
            self._confine(key, LARGEST_METADATA_BYTES)
            value = await self._store.get(key, prototype, byte_range)
            self._note(key, value)
            return value
        if byte_range is None:
            return await self._chunk(key, prototype)
        if key not in self._shards:
            value = await self._chunk(key, prototype)
            if value is None:
                return None
            self._shards[key] = value
            while len(self._shards) > 1 and sum(map(len, self._shards.values())) > SHARDS_BYTES:
                self._shards.pop(next(iter(self._shards)))
        whole = self._shards.get(key)
        return None if whole is None else whole[_slice(byte_range, len(whole))]

    async def get_partial_values(self, prototype, key_ranges) -> list[Buffer | None]:
        """As `get`, for several keys."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def _get_many(self, requests):
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer) -> None:
        """Store bytes; chunks are remembered for `record`."""
        if key.rpartition("/")[2] not in METADATA:
            self.written[key] = chunk_of(_bytes(value))
            self._shards.pop(key, None)
        self._note(key, value)
        await self._store.set(key, value)

    async def record(self) -> None:
        """Add the written chunks to the manifests, whose entries for other chunks are kept."""
        prototype, parts = default_buffer_prototype(), {}
        for key, chunk in self.written.items():
            array = self._array(key)
            if self._manifested(array) is not None:
                name = part_key(array, key)
                if name not in parts:
                    parts[name] = dict(await self._part(name, prototype))
                parts[name][key.removeprefix(f"{array}/")] = chunk
        for name, chunks in parts.items():
            await self._store.set(name, prototype.buffer.from_bytes(encode(chunks)))
        self.written, self._parts = {}, {}

    def encoding(self, array: str) -> Encoding:
        """Return how the chunks of an array are encoded. Its metadata must have been read."""
        if array not in self._encodings:
            self._encodings[array] = encoding_of(self._documents[array], f"{self._place}: {array}")
        return self._encodings[array]

    def refuse_unsafe(self, array: str) -> None:
        """Raise `UnsafeData` if the metadata of an array were read and declare an unknown encoding."""
        if array in self._documents:
            self.encoding(array)

    def missing(self, array: str, keys: Iterable[str]) -> Iterator[str]:
        """Return the keys, of the chunks of an array, that are not stored."""
        stored = sync(self._listed(f"{array}/"))
        return (key for key in keys if key not in stored)

    async def _listed(self, prefix):
        return {key async for key in self._store.list_prefix(prefix)}

    async def _chunk(self, key, prototype):
        """Return a whole chunk, or a whole shard, checked."""
        where, array = f"{self._place}: key {key}", self._array(key)
        encoding = self.encoding(array)
        self._confine(key, encoding.most_stored_bytes)
        value = await self._store.get(key, prototype)
        if value is None:
            if not self.read_only:  # the chunk is about to be written
                return None
            raise MissingChunk(
                f"{where}: expected a chunk, there is none (zarr would read fill values); restore it from a copy, "
                "or, if it was left out because it holds fill values only, write the array again with "
                f"config={{'write_empty_chunks': True}} (zarr), encoding={{'{array}': {{'write_empty_chunks': True}}}} "
                "(xarray), or `bcmdist import`"
            )
        data = _bytes(value)
        found = chunk_of(data)
        if self._manifested(array) is not None:
            listed = await self._part(part_key(array, key), prototype)
            expected = self.written.get(key) or listed.get(key.removeprefix(f"{array}/"))
            if not self._appended(array, key):
                if expected is None:
                    raise CorruptChunk(
                        f"{where}: expected it in the manifest of {array}, it is not; write the data set again with "
                        "bcmdist"
                    )
                compare(found, expected, where)
            elif found != expected:
                self.seen[key] = found
        else:
            self.seen[key] = found
        encoding.check(data, where)
        return value

    async def _part(self, name, prototype):
        if name not in self._parts:
            self._confine(name, LARGEST_METADATA_BYTES)
            text = await self._store.get(name, prototype)
            self._parts[name] = {} if text is None else decode(text.to_bytes(), f"{self._place}: key {name}")
        return self._parts[name]

    def _note(self, key, value):
        """Remember array metadata as passed to zarr."""
        path, _, name = key.rpartition("/")
        if name in ("zarr.json", ".zarray") and value is not None:
            with contextlib.suppress(ValueError, TypeError):  # zarr reports what is wrong with them
                self._documents[path] = dict(json.loads(value.to_bytes()))
                self._encodings.pop(path, None)

    def _array(self, key):
        """Return the path of the array to which a chunk belongs: the longest prefix whose metadata were read."""
        path = key
        while path:
            path = path.rpartition("/")[0]
            if path in self._documents:
                return path
        raise UnsafeData(f"{self._place}: key {key}: expected a chunk of an array, it belongs to none; name an array")

    def _manifested(self, array):
        """Return the number of rows of an array that its manifest covers; None if it has no manifest."""
        group, _, name = array.rpartition("/")
        attributes = self._documents.get(group, {}).get("attributes")
        recorded = attributes.get(MANIFEST) if isinstance(attributes, dict) else None
        return recorded.get(name) if isinstance(recorded, dict) else None

    def _appended(self, array, key):
        """Return whether a chunk holds rows beyond the manifest, because other software appends or appended rows."""
        document, recorded = self._documents[array], self._manifested(array)
        size = document["chunk_grid"]["configuration"]["chunk_shape"][0]
        end = (first_index(key.removeprefix(array)) + 1) * size
        return document["shape"][0] > recorded and end > recorded

    def _confine(self, key, most_bytes):
        """Refuse a file outside the root, a file larger than `most_bytes`, and anything that is not a file."""
        if self.root is None:
            return
        path, parts = self.root, key.split("/")
        if ".." in parts or any(os.path.islink(path := f"{path}/{part}") for part in parts):
            real = os.path.realpath(f"{self.root}/{key}")
            if not real.startswith(f"{self.root}/"):
                raise UnsafeData(
                    f"{self.root}: key {key}: expected a file inside the data set, it leads to {real}; copy the file "
                    "to where the link is"
                )
        try:
            status = os.stat(f"{self.root}/{key}")
        except OSError:  # the store reports a missing key
            return
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise UnsafeData(f"{self.root}: key {key}: expected a file, found something else; remove it")
        if stat.S_ISREG(status.st_mode) and status.st_size > most_bytes:
            raise UnsafeData(
                f"{self.root}: key {key}: expected at most {most_bytes:,} bytes, the file has {status.st_size:,}; "
                "restore it from a copy, or do not trust where it came from"
            )


def _bytes(value: Buffer) -> memoryview:
    return memoryview(value.as_numpy_array().view("B"))  # type: ignore[arg-type]


def _slice(byte_range, length):
    if isinstance(byte_range, RangeByteRequest):
        return slice(byte_range.start, byte_range.end)
    if isinstance(byte_range, OffsetByteRequest):
        return slice(byte_range.offset, length)
    return slice(max(0, length - byte_range.suffix), length)


@contextlib.contextmanager
def recorded(url, mode="r+", **options) -> Iterator[zarr.Group]:
    """Open a group for writing; at the end of the block its written chunks are added to the manifests.

    If the block fails, the manifests are not updated; an overwritten chunk is then `CorruptChunk` until it is written
    again. Only one writer at a time.

    Parameters
    ----------
    mode, options : passed to `zarr.open_group`
    """
    store = zarr.open_group(url, mode=mode, **options)
    checked = CheckedStore(store.store)
    group = zarr.open_group(checked, path=store.path, mode="r+", use_consolidated=False)
    yield group
    sync(checked.record())
    recorded: Any = group.attrs.get(MANIFEST, {})
    rows = {name: group[name].shape[0] for name in recorded}  # type: ignore[union-attr]
    if rows != recorded:
        group.update_attributes({MANIFEST: rows})


def safe_name(name: str, where: str) -> str:
    """Return the name of an array unchanged if it is safe.

    Raises
    ------
    UnsafeData
        The name could lead out of the group.
    """
    parts = unquote(name).replace("\\", "/").split("/")
    longest = max(len(part.encode(errors="replace")) for part in parts)
    if "\0" in unquote(name) or ":" in name or {"", ".", ".."} & set(parts) or longest > LONGEST_NAME:
        shown = name if len(name) < 40 else f"{name[:40]}..."
        raise UnsafeData(
            f"{where}: expected the name of an array in this group, got {shown!r}; give one without '..', '/' in "
            f"front, ':' and NUL, of at most {LONGEST_NAME} bytes"
        )
    return name
