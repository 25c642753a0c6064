"""Chunks of a few kilobytes that decode to gigabytes: refused before they are decoded, whatever they are made of."""

import subprocess
import sys
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from google_crc32c import value as crc32c

from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.errors import CorruptChunk, UnsafeData

ROWS, COLUMNS = 40, 3
DECLARED = 10 * COLUMNS * 8  # bytes of a chunk
MOST_MEGABYTES = 64
HUGE = 2**27


def zeros(codec, size=DECLARED):
    """A frame that holds zeros."""
    if isinstance(codec, numcodecs.GZip | numcodecs.Zlib):  # piece by piece
        packer = zlib.compressobj(6, wbits=31 if isinstance(codec, numcodecs.GZip) else 15)
        pieces = [packer.compress(bytes(min(2**20, size - done))) for done in range(0, size, 2**20)]
        return b"".join(pieces) + packer.flush()
    return bytes(codec.encode(np.zeros(size, "u1")))


def streamed(blocks, compressed=False):
    """A zstd frame that does not say its size, of blocks of 128 KiB of zeros."""
    if compressed:
        kind, body = 2, zeros(ZSTD, 2**17)[12:]  # behind the header of its frame, and its own
        length = len(body)
    else:
        kind, body, length = 1, b"\0", 2**17
    heads = [(length << 3 | kind << 1 | (k == blocks - 1)).to_bytes(3, "little") for k in range(blocks)]
    return b"\x28\xb5\x2f\xfd" + b"\x00\x58" + b"".join(head + body for head in heads)


def skippable(data):
    return (0x184D2A53).to_bytes(4, "little") + len(data).to_bytes(4, "little") + data


def checked(data):
    return data + crc32c(data).to_bytes(4, "little")


def blosc(at, word):
    """A frame of blosc whose header says something else there."""
    frame = zeros(numcodecs.Blosc())
    return frame[:at] + word.to_bytes(4, "little") + frame[at + 4 :]


def shard(*chunks, index=None):
    """Chunks and, at the end, their index."""
    ends = np.cumsum([len(chunk) for chunk in chunks]).tolist()
    index = index or [(end - len(chunk), len(chunk)) for chunk, end in zip(chunks, ends, strict=True)]
    return b"".join(chunks) + checked(np.array(index, "<u8").tobytes())


ZSTD, GZIP, ZLIB, LZ4 = numcodecs.Zstd(1), numcodecs.GZip(), numcodecs.Zlib(), numcodecs.LZ4()
V3 = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "zstd crc32c": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "blosc": {"compressors": zarr.codecs.BloscCodec()},
    "shards": {"chunks": (1, COLUMNS), "shards": (10, COLUMNS), "compressors": zarr.codecs.ZstdCodec()},
    "shards gzip": {"chunks": (1, COLUMNS), "shards": (10, COLUMNS), "compressors": zarr.codecs.GzipCodec()},
}
V2 = {
    "v2 zstd": {"compressors": ZSTD},
    "v2 zlib": {"compressors": ZLIB},
    "v2 lz4": {"compressors": LZ4},
    "v2 delta": {"filters": [numcodecs.Delta("<f8", "<i1")], "compressors": ZSTD},
    "v2 packbits": {"filters": [numcodecs.PackBits()], "compressors": ZSTD, "dtype": bool},
    "v2 adler32": {"filters": [numcodecs.Adler32()], "compressors": ZSTD},
    "v2 fixed": {"filters": [numcodecs.FixedScaleOffset(0, 1, "<f8", "<i1")], "compressors": ZSTD},
}
# Bytes of a chunk of 10 rows, by kind: how it is stored, and what is stored instead.
BOMBS = {
    "zstd": ("zstd", lambda: zeros(ZSTD, HUGE)),
    "zstd without a size": ("zstd", lambda: streamed(2**14)),
    "zstd without a size, of compressed blocks": ("zstd", lambda: streamed(2**9, compressed=True)),
    "zstd, and zstd": ("zstd", lambda: zeros(ZSTD) + zeros(ZSTD, HUGE)),
    "zstd many times": ("zstd", lambda: zeros(ZSTD, 2**21) * 500),
    "zstd, and without a size": ("zstd", lambda: zeros(ZSTD) + streamed(2**13)),
    "zstd without a size, and zstd": ("zstd", lambda: streamed(1) + zeros(ZSTD, HUGE)),
    "zstd behind what is skipped": ("zstd", lambda: skippable(b"nothing") + zeros(ZSTD) + zeros(ZSTD, HUGE)),
    "zstd before what is skipped": ("zstd", lambda: zeros(ZSTD) + skippable(b"") + zeros(ZSTD, HUGE)),
    "zstd that is checked": ("zstd crc32c", lambda: checked(zeros(ZSTD) + zeros(ZSTD, HUGE))),
    "zstd in version 2": ("v2 zstd", lambda: zeros(ZSTD) + zeros(ZSTD, HUGE)),
    "gzip": ("gzip", lambda: zeros(GZIP, HUGE)),
    "gzip, and gzip": ("gzip", lambda: zeros(GZIP) + zeros(GZIP, HUGE)),
    "gzip many times": ("gzip", lambda: zeros(GZIP, 2**20) * 500),
    "gzip, little": ("gzip", lambda: zeros(GZIP, 2**26 - 2**16)),
    "zlib": ("v2 zlib", lambda: zeros(ZLIB, HUGE)),
    "zlib, and zlib": ("v2 zlib", lambda: zeros(ZLIB) + zeros(ZLIB, HUGE)),
    "zlib, little": ("v2 zlib", lambda: zeros(ZLIB, 2**26 - 2**16)),
    "blosc": ("blosc", lambda: zeros(numcodecs.Blosc(), HUGE)),
    "blosc, and blosc": ("blosc", lambda: zeros(numcodecs.Blosc()) + zeros(numcodecs.Blosc(), HUGE)),
    "blosc of a longer frame": ("blosc", lambda: blosc(12, 2**20)),
    "blosc of large blocks": ("blosc", lambda: blosc(8, 2**30)),
    "lz4": ("v2 lz4", lambda: zeros(LZ4, HUGE)),
    "lz4 that says less": ("v2 lz4", lambda: DECLARED.to_bytes(4, "little") + zeros(LZ4, HUGE)[4:]),
    "in a shard": ("shards", lambda: shard(zeros(ZSTD, HUGE), *[zeros(ZSTD, 24)] * 9)),
    "frames in a shard": ("shards", lambda: shard(*[zeros(ZSTD, 24)] * 9, zeros(ZSTD, 24) + zeros(ZSTD, HUGE))),
    "a little in each chunk of a shard": ("shards", lambda: shard(*[streamed(120)] * 10)),
    "a little gzip in each chunk of a shard": ("shards gzip", lambda: shard(*[zeros(GZIP, 2**26 - 2**16)] * 10)),
    "one chunk for all of a shard": ("shards", lambda: shard(zeros(ZSTD, 24), index=[(0, 17)] * 10)),
    "delta": ("v2 delta", lambda: zeros(ZSTD, DECLARED * 2**16)),
    "fixed scale": ("v2 fixed", lambda: zeros(ZSTD, DECLARED * 2**16)),
    "packed bits": ("v2 packbits", lambda: zeros(ZSTD, DECLARED * 2**16)),
    "behind a checksum": ("v2 adler32", lambda: zeros(ZSTD, HUGE)),
}
LARGE = {"delta": 2**16, "fixed scale": 2**16, "packed bits": 2**18}  # how many times more rows where filters multiply


@pytest.fixture
def bomb(tmp_path):
    """A data set whose second chunk of X is a bomb: its path, and the key."""

    def make(kind):
        stored, data = BOMBS[kind]
        factor, version = LARGE.get(kind, 1), 3 if stored in V3 else 2
        path = tmp_path / f"{kind}.zarr"
        group = zarr.open_group(path, mode="w", zarr_format=version)
        options = {"dtype": "f8", "chunks": (10 * factor, COLUMNS)} | (V3 | V2)[stored]
        group.create_array("X", shape=(ROWS * factor, COLUMNS), **options)[...] = 1
        group.create_array("y", shape=(ROWS * factor,), dtype="f8", chunks=(10 * factor,))[...] = 1
        key = "X/c/1/0" if version == 3 else "X/1.0"
        (path / key).write_bytes(data())
        return path, key

    return make


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_an_error_that_names_it(bomb, kind, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "HUGE", 2**22)  # whoever decodes it should not be hurt
    path, key = bomb(kind)
    with pytest.raises((UnsafeData, CorruptChunk), match=f"key {key}: expected "):
        list(read_all(partitions(open_data(path), 10 * LARGE.get(kind, 1))))


# Each data set in a process of its own, which has imported all that it needs before it is forked.
PROGRAM = """
import os, resource, sys
from bcmdist.data.dataset import open_data
from bcmdist.errors import CorruptChunk, UnsafeData
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
for path, rows in zip(sys.argv[1::2], sys.argv[2::2]):
    if os.fork():
        os.wait()
        continue
    parts = partitions(open_data(path), int(rows))
    list(read_all(parts[2:3]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try: list(read_all(parts[1:2]))
    except (CorruptChunk, UnsafeData) as error: found = str(error)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(grown, found, flush=True)
    os._exit(0)
"""


@pytest.mark.slow
def test_bombs_take_little_memory(bomb):
    bombs = [(*bomb(kind), str(10 * LARGE.get(kind, 1))) for kind in BOMBS]
    arguments = [text for path, _, rows in bombs for text in (str(path), rows)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120)
    for kind, (_, key, _), line in zip(BOMBS, bombs, done.stdout.splitlines(), strict=True):
        grown, text = line.split(" ", 1)
        assert f"key {key}: expected " in text, kind
        assert int(grown) <= MOST_MEGABYTES, kind


# --- What is none ---


def test_a_frame_without_a_size_is_read_where_it_fits(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    shape = (2**15, 2)
    group.create_array("X", data=np.zeros(shape), chunks=shape, config={"write_empty_chunks": True})
    group.create_array("y", data=np.ones(2**15), chunks=(2**15,))
    (tmp_path / "a.zarr/X/c/0/0").write_bytes(streamed(4))
    (rows,) = (rows for _, rows in read_all(partitions(open_data(tmp_path / "a.zarr"), 2**15)))
    np.testing.assert_array_equal(rows.X, 0.0)
