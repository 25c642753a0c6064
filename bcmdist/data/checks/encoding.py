"""Encodings: how a Zarr array stores its chunks, and the memory that one takes, determined before decoding.

A compressed chunk of a few kilobytes may decode to gigabytes, and metadata may be forged. The decoded size is bounded
from the headers of all frames (zstd, RFC 8878; blosc; lz4), or by decoding piece by piece (gzip, zlib, if the size
could exceed the limit), and compared with the size that the metadata declare. Other codecs, such as pickle, are
refused.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import CorruptChunk, UnsafeData

# Limit for a decoded chunk, whatever the memory: half of it is already a poor choice of chunks.
LARGEST_CHUNK_BYTES = 2**32
# Tolerated excess over the declared size of a chunk or shard, if only a bound of the size is known. Arbitrary: the
# decoder of a frame without a declared size holds up to three copies of the data.
SLACK_BYTES = 2**24

# Codecs that keep the number of bytes, filters that change the data type (with the option that names it), and 4-byte
# checksums.
SAME_SIZE = {"bytes", "transpose", "shuffle", "bitround"}
RETYPED = {"delta": "astype", "fixedscaleoffset": "astype", "quantize": "astype", "astype": "encode_dtype"}
CHECKSUMS = {"crc32c", "crc32", "adler32", "fletcher32"}

TEXT_BYTES = 1024  # assumed upper limit for the average size of a variable-length text

NOT_STORED = 2**64 - 1  # marks a missing chunk in the index of a shard


@dataclass(frozen=True)
class Encoding:
    """How the chunks (or shards, if there are shards) of an array are stored."""

    decoded_bytes: int
    frame_bytes: int
    """size of the chunk after the filters, which is the content of a frame"""
    exact: bool = True
    """False for texts, whose size is an upper limit"""
    compressor: str | None = None
    before: int = 0
    """bytes of checksums before the frame"""
    after: int = 0
    """bytes of checksums after the frame"""
    shard: "Shard | None" = None

    @property
    def most_stored_bytes(self) -> int:
        """Upper limit for the stored size of a chunk."""
        index = self.shard.index_bytes if self.shard else 0
        return self.frame_bytes * 17 // 16 + index + 2**20

    def check(self, data: memoryview, where: str) -> None:
        """Raise if the bytes of a chunk would not decode to the declared size.

        Raises
        ------
        UnsafeData
            They decode to more.
        CorruptChunk
            They decode to less, or cannot be decoded.
        """
        slack = SLACK_BYTES
        for encoding, part in self.shard.chunks(data, where) if self.shard else [(self, data)]:
            slack -= encoding._excess(part, where, slack)

    def _excess(self, data, where, slack):
        """Return how many bytes a frame may exceed the declared size; raise if its size is wrong or could be too
        large."""
        if not self.compressor:
            return 0
        frame, limit = data[self.before : len(data) - self.after], self.frame_bytes
        try:
            size, is_exact = COMPRESSORS[self.compressor](frame, limit)
        except (ValueError, IndexError, zlib.error) as error:
            raise CorruptChunk(
                f"{where}: expected {self.compressor} data, found none ({error}); restore it from a copy"
            ) from error
        if size > limit + (0 if is_exact else slack):
            raise UnsafeData(
                f"{where}: expected {limit:,} bytes once decoded, its {len(frame):,} bytes hold "
                f"{'' if is_exact else 'up to '}{size:,} or more; restore it from a copy, or do not trust its source"
            )
        if is_exact and size < limit and self.exact:
            raise CorruptChunk(
                f"{where}: expected {limit:,} bytes once decoded, it holds {size:,}; restore it from a copy"
            )
        return max(0, size - limit)


@dataclass(frozen=True)
class Shard:
    """Chunks within one stored object, located by an index of (offset, length) pairs."""

    inner: Encoding
    count: int
    index_bytes: int
    at_end: bool

    def chunks(self, data, where) -> Iterator[tuple[Encoding, memoryview]]:
        """Yield the encoding and the stored bytes of each chunk in the shard; chunks must not overlap."""
        if len(data) < self.index_bytes:
            raise CorruptChunk(
                f"{where}: expected at least the {self.index_bytes} bytes of a shard's index, got {len(data)}; "
                "restore it from a copy"
            )
        start = len(data) - self.index_bytes if self.at_end else 0
        pairs = np.frombuffer(data[start : start + 16 * self.count], "<u8").reshape(-1, 2)
        end = 0
        for offset, length in sorted(pairs[~np.all(pairs == NOT_STORED, axis=1)].tolist()):
            if offset + length > len(data):
                raise CorruptChunk(
                    f"{where}: expected a shard that is as long as its index says, its {len(data):,} bytes are not; "
                    "restore it from a copy"
                )
            if offset < end:
                raise CorruptChunk(
                    f"{where}: expected chunks of a shard one after another, its index lets two share bytes "
                    f"{offset:,} to {min(end, offset + length):,}; restore it from a copy"
                )
            end = offset + length
            yield self.inner, data[offset:end]


def encoding_of(document: dict, where: str) -> Encoding:
    """Return the encoding declared in an array's metadata (`.zarray` or `zarr.json`, parsed).

    Raises
    ------
    UnsafeData
        The encoding is not supported, or chunks are too large.
    """
    try:
        if document["zarr_format"] == 2:
            codecs = [*(document.get("filters") or []), *filter(None, [document.get("compressor")])]
            names = [("bytes", {}), *((codec["id"], codec) for codec in codecs)]
            encoding = _chain(document["chunks"], _item_bytes(document["dtype"]), names)
        else:
            shape = document["chunk_grid"]["configuration"]["chunk_shape"]
            encoding = _chain(shape, _item_bytes(document["data_type"]), _named(document["codecs"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsafeData(
            f"{where}: expected chunks of plain numbers, compressed with {', '.join(COMPRESSORS)} or not at all, found "
            f"something else ({error}); write the array again with one of these"
        ) from error
    if encoding.decoded_bytes > LARGEST_CHUNK_BYTES:
        raise UnsafeData(
            f"{where}: expected chunks of at most {LARGEST_CHUNK_BYTES:,} bytes, its metadata declare "
            f"{encoding.decoded_bytes:,}; write it again in smaller chunks"
        )
    return encoding


def _named(codecs) -> list[tuple[str, dict]]:
    return [(codec["name"].removeprefix("numcodecs."), codec.get("configuration", {})) for codec in codecs]


def _item_bytes(declared: Any) -> int:
    """Return the bytes of one item of a data type, from its name in metadata."""
    if declared in ("string", "|O"):  # to be encoded by vlen-utf8; `_chain` refuses other codecs
        return TEXT_BYTES
    if isinstance(declared, dict):
        name = declared["name"]
        if name == "fixed_length_utf32":
            return int(declared["configuration"]["length_bytes"])
        if name not in ("numpy.datetime64", "numpy.timedelta64"):
            raise ValueError(f"data type {name}")
        return 8
    dtype = np.dtype(declared)
    if dtype.kind not in "fiubcMU":
        raise ValueError(f"data type {dtype}")
    return dtype.itemsize


def _chain(shape, item_bytes, codecs) -> Encoding:
    """Return the encoding of chunks with a shape and codecs, in the order of application."""
    size = item_bytes
    for length in shape:  # Python integers, which cannot overflow
        size *= int(length)
    if size < 1:
        raise ValueError(f"chunks of shape {tuple(shape)}")
    names = [name for name, _ in codecs]
    if "sharding_indexed" in names:
        return _sharded(shape, item_bytes, codecs, size)
    frame, items, exact, compressor, before, after = size, size // item_bytes, True, None, 0, 0
    for name, options in codecs:
        if name in COMPRESSORS and compressor is None:
            compressor = name
        elif name in CHECKSUMS and compressor is None:
            frame = items = frame + 4
        elif name in CHECKSUMS:
            first = options.get("location", "start" if name in ("crc32", "adler32") else "end") == "start"
            before, after = before + 4 * first, after + 4 * (not first)
        elif name in RETYPED and compressor is None:
            stored = options.get(RETYPED[name]) or options.get("dtype")
            frame = items * _item_bytes(stored) if stored else frame
        elif name == "vlen-utf8" and compressor is None:
            exact = False
        elif name == "packbits" and compressor is None:
            frame = items = 1 + -(-items // 8)
        elif name not in SAME_SIZE or compressor:
            raise ValueError(f"codecs {', '.join(names)}")
    return Encoding(size, frame, exact, compressor, before, after)


def _sharded(shape, item_bytes, codecs, size):
    ((_, options),) = codecs
    inner = _chain(options["chunk_shape"], item_bytes, _named(options["codecs"]))
    index = [name for name, _ in _named(options["index_codecs"])]
    if index not in (["bytes"], ["bytes", "crc32c"]) or inner.shard:
        raise ValueError(f"shards with an index of {', '.join(index)}")
    count = int(np.prod([a // b for a, b in zip(shape, options["chunk_shape"], strict=True)], dtype=object))
    at_end = options.get("index_location", "end") == "end"
    return Encoding(size, size, shard=Shard(inner, count, 16 * count + 4 * (len(index) - 1), at_end))


# --- Decoded size of a frame: (bytes, exact or only a bound); counting may stop beyond a limit ---


def _zstd(data, limit):
    """RFC 8878, 3.1: total size of all frames, as decoders concatenate them; from headers or bounded by blocks."""
    size, is_exact, start = 0, True, 0
    while start < len(data) and size <= limit + SLACK_BYTES:
        magic = int.from_bytes(data[start : start + 4], "little")
        if magic & ~15 == 0x184D2A50:  # skippable frame
            start += 8 + int.from_bytes(data[start + 4 : start + 8], "little")
            continue
        if magic != 0xFD2FB528:
            raise ValueError("no magic number")
        descriptor = data[start + 4]
        single, flag = descriptor >> 5 & 1, descriptor >> 6
        start += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
        length = (single, 2, 4, 8)[flag]
        declared = int.from_bytes(data[start : start + length], "little") + 256 * (flag == 1)
        blocks, start = _zstd_blocks(data, start + length)
        start += 4 * (descriptor >> 2 & 1)
        size, is_exact = size + (declared if length else blocks), is_exact and bool(length)
    return size, is_exact


def _zstd_blocks(data, start):
    """Return an upper limit for the size of the blocks of a frame, and their end."""
    size, last = 0, False
    while not last:
        head = int.from_bytes(data[start : start + 3], "little")
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        if start + 3 > len(data) or kind == 3:
            raise ValueError("no block")
        size += 2**17 if kind == 2 else length
        start += 3 + (1 if kind == 1 else length)
    return size, start


def _blosc(data, limit):
    """16-byte header; the last three words are the decoded size, the block size and the length (unchecked by blosc)."""
    if len(data) < 16:
        raise ValueError("no header")
    size, block, length = np.frombuffer(data[4:16], "<u4").tolist()
    if length != len(data) or block > max(size, 1):
        raise ValueError(f"{len(data)} bytes, its header says {length}, in blocks of {block}")
    return size, True


def _lz4(data, limit):
    """numcodecs' format: the size comes first."""
    return int.from_bytes(data[:4], "little"), True


MOST_DEFLATED = 1032  # zlib's largest compression ratio


def _deflated(bits):
    """Return the size function of a zlib format. The size is not declared, so the data are decoded in small pieces."""

    def size(data, limit):
        if len(data) * MOST_DEFLATED <= limit:
            return limit, False
        total, remaining = 0, bytes(data)
        while remaining.strip(b"\0") and total <= limit:
            decoder = zlib.decompressobj(bits)
            while not decoder.eof and total <= limit:
                piece = decoder.decompress(remaining, 2**20)
                if not piece and not decoder.unconsumed_tail and not decoder.eof:
                    raise ValueError("it ends early")
                total, remaining = total + len(piece), decoder.unconsumed_tail
            remaining = decoder.unused_data
        return total, True

    return size


COMPRESSORS: dict[str, Callable[[memoryview, int], tuple[int, bool]]] = {
    "zstd": _zstd,
    "blosc": _blosc,
    "lz4": _lz4,
    "gzip": _deflated(31),
    "zlib": _deflated(15),
}
