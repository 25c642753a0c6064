"""Chunks that are lost, torn, flipped or hostile: always an error that names the key, never other numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from bcmdist.api.gbcm import GBCM
from bcmdist.data.checks.checked_store import CheckedStore, recorded, safe_name
from bcmdist.data.checks.encoding import LARGEST_CHUNK_BYTES, encoding_of
from bcmdist.data.checks.manifest import Chunk, decode, encode, from_table, to_table
from bcmdist.data.dataset import Dataset, open_data, open_growing
from bcmdist.data.groups import open_group
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.sources.directory import Directory
from bcmdist.data.sources.open import open_source
from bcmdist.data.writing import write_dataset
from bcmdist.errors import CorruptChunk, DataChanged, DataDamaged, InvalidOption, MissingChunk, UnsafeData
from bcmdist.learning.settings import Settings

GIVEN = Settings(partition="chunks", query=20, rows_per_expert=20, learn=False)


def rows_of(path, rows=10):
    return np.concatenate([rows.X for _, rows in read_all(partitions(open_data(path), rows))])


def chunk_files(path):
    return sorted(f for f in Path(path).rglob("*") if f.is_file() and "/c/" in str(f))


@pytest.fixture
def stored(make_data, rng):
    """A data set of 5 chunks of X and of y, with a manifest."""
    X = np.round(rng.standard_normal((50, 3)), 1)  # compresses, as data do
    return make_data("stored.zarr", rows_per_chunk=10, X=X, y=(X[:, 0] > 0).astype("u1"))


@pytest.fixture
def foreign(tmp_path, rng):
    """As zarr writes it without being asked for anything, 4 chunks; its format can be chosen."""

    def make(name="foreign.zarr", X=None, zarr_format=3, **options):
        X = rng.standard_normal((40, 3)) if X is None else X
        group = zarr.open_group(tmp_path / name, mode="w", zarr_format=zarr_format)
        group.create_array("X", data=X, chunks=(10, X.shape[1]), **options)
        group.create_array("y", data=X[:, 0] + 1.0, chunks=(10,))
        return tmp_path / name

    return make


def found_in(path, key, error=DataDamaged):
    """The error of reading a data set, by its path or opened before; it must name the key."""
    with pytest.raises(error) as caught:
        list(read_all(partitions(path if isinstance(path, Dataset) else open_data(path), 10)))
    assert f"key {key}" in str(caught.value)
    return str(caught.value)


# --- Lost, torn, flipped ---


@pytest.mark.parametrize(("flips", "losses"), [(50, 5), pytest.param(1000, 100, marks=pytest.mark.slow)])
def test_every_flipped_bit_and_every_lost_chunk_is_found(stored, rng, flips, losses):
    before, files, data = rows_of(stored), chunk_files(stored), open_data(stored)
    assert len(files) == 10
    for _ in range(flips):
        file = files[rng.integers(len(files))]
        flipped = bytearray(whole := file.read_bytes())
        flipped[rng.integers(len(flipped))] ^= 1 << rng.integers(8)
        file.write_bytes(flipped)
        found_in(data, file.relative_to(stored), CorruptChunk)
        file.write_bytes(whole)
    for _ in range(losses):
        file = files[rng.integers(len(files))]
        whole = file.read_bytes()
        file.unlink()
        found_in(data, file.relative_to(stored), MissingChunk)
        file.write_bytes(whole)
    np.testing.assert_array_equal(rows_of(stored), before)


def test_torn_chunks_are_measured(stored):
    file = Path(stored, "X/c/3/0")
    whole = file.read_bytes()
    for length in (len(whole) // 2, 0, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert f"key X/c/3/0: {length} of {len(whole)} bytes; restore" in found_in(stored, "X/c/3/0", CorruptChunk)


def test_a_chunk_in_the_place_of_another_is_found(make_data, rng):
    path = make_data(rows_per_chunk=10, X=rng.standard_normal((50, 3)), y=np.zeros(50))  # noise: of equal lengths
    Path(path, "X/c/3/0").write_bytes(Path(path, "X/c/4/0").read_bytes())
    assert "its hash differs" in found_in(path, "X/c/3/0", CorruptChunk)


def test_a_flipped_or_lost_part_of_a_manifest_is_found(stored):
    file = Path(stored, "X/manifest/00000000")
    data = bytearray(file.read_bytes())
    for position in (3, 64, 80, len(data) - 2):
        flipped = data.copy()
        flipped[position] ^= 1
        file.write_bytes(flipped)
        found_in(stored, "X/manifest/00000000", CorruptChunk)
    file.unlink()
    assert "expected it in the manifest of X" in found_in(stored, "X/c/", CorruptChunk)


def test_a_chunk_that_holds_fill_values_is_read(make_data, tmp_path):
    path = make_data(X=np.zeros((100, 2)), y=np.zeros(100))
    np.testing.assert_array_equal(rows_of(path), 0.0)
    Path(path, "y/c/1").unlink()
    found_in(path, "y/c/1", MissingChunk)


def test_rows_that_are_added_are_recorded(stored, rng):
    before, more = rows_of(stored), rng.standard_normal((15, 3))
    with recorded(stored) as group:
        for name, values in [("X", more), ("y", np.ones(15))]:
            array = group[name]
            array.resize((65, *array.shape[1:]))
            array[50:] = values
    np.testing.assert_array_equal(rows_of(stored), np.concatenate([before, more]))
    with zarr.config.set({"array.write_empty_chunks": True}):
        zarr.open_group(stored, mode="r+")["X"][60] = 0.5  # not by its writer
    found_in(stored, "X/c/6/0", CorruptChunk)


@pytest.mark.slow
def test_a_manifest_is_many_small_files(tmp_path):
    write_dataset(tmp_path / "a.zarr", {"X": np.zeros((600, 1)), "y": np.zeros(600)}, rows_per_chunk=1)
    assert sorted(os.listdir(tmp_path / "a.zarr/X/manifest")) == ["00000000", "00000001", "00000002"]
    assert sorted(open_group(tmp_path / "a.zarr").array_keys()) == ["X", "y"]  # zarr does not mind them
    assert open_data(tmp_path / "a.zarr").rows == 600


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1), st.builds(Chunk, st.integers(0, 2**40), st.text("0123456789abcdef"))))
def test_manifests_come_back(chunks):
    assert decode(encode(chunks), "here") == chunks


def test_tables_come_back():
    chunks = {"a b/c/0": Chunk(3, "0" * 64), "X/c/10/0": Chunk(0, "f" * 64)}
    assert from_table(to_table(chunks)) == chunks
    assert to_table(chunks).dtype.kind == "S"


def test_each_chunk_is_read_from_disk_once(stored, monkeypatch):
    keys, original = [], zarr.storage.LocalStore.get

    async def get(self, key, *args, **kwargs):
        keys.append(key)
        return await original(self, key, *args, **kwargs)

    monkeypatch.setattr(zarr.storage.LocalStore, "get", get)
    rows_of(stored)
    chunks = [key for key in keys if "/c/" in key]
    assert len(chunks) == len(set(chunks)) == 10


# --- Data sets of others ---


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_lost_chunk_of_others_is_never_fill_values(foreign, zarr_format):
    path = foreign(zarr_format=zarr_format)
    key = {2: "X/2.0", 3: "X/c/2/0"}[zarr_format]
    (path / key).unlink()
    text = found_in(path, key, MissingChunk)
    assert "there is none (zarr would read fill values)" in text
    assert "write_empty_chunks" in text


def test_a_lost_shard_is_found_and_a_flipped_one_too(foreign, tmp_path, rng):
    X = rng.standard_normal((40, 3))
    path = foreign("shards.zarr")
    group = zarr.open_group(path, mode="r+")
    del group["X"]
    group.create_array("X", data=X, chunks=(5, 3), shards=(20, 3))
    np.testing.assert_array_equal(rows_of(path), X)
    np.testing.assert_array_equal(rows_of(path, 3), X)
    file = path / "X/c/1/0"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    found_in(path, "X/c/1/0", CorruptChunk)
    file.unlink()
    found_in(path, "X/c/1/0", MissingChunk)


def test_chunks_left_out_of_a_shard_by_its_writer_are_fill_values(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    X = np.zeros((40, 2))
    X[:10] = 1.0
    group.create_array("X", data=X, chunks=(10, 2), shards=(40, 2))
    group.create_array("y", data=np.ones(40), chunks=(40,))
    np.testing.assert_array_equal(rows_of(tmp_path / "a.zarr"), X)


def test_what_a_fit_has_read_first_is_compared_later(foreign, rng):
    path = foreign()
    gbcm = GBCM.fit(path, GIVEN, model=path.parent / "model")
    assert len(gbcm.store.get_array(gbcm.facts["chunks"])) == 8
    key = next(entry.key for entry in gbcm.ledger if "[20:" in entry.key)
    zarr.open_group(path, mode="r+")["y"][25] += 0.5
    with pytest.raises(DataChanged, match=r"expected the rows that were surveyed .* from key y/c/2; do not change"):
        gbcm.forget([key])
    (path / "y/c/2").unlink()
    with pytest.raises(MissingChunk, match="key y/c/2"):
        gbcm.forget([key])


def test_a_data_set_with_a_manifest_needs_no_second_one(stored, tmp_path):
    assert "chunks" not in GBCM.fit(stored, GIVEN, model=tmp_path / "model").facts


# --- What a chunk decodes to ---

CODECS = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "zstd with checksums": {"compressors": [zarr.codecs.ZstdCodec(checksum=True), zarr.codecs.Crc32cCodec()]},
    "blosc": {"compressors": zarr.codecs.BloscCodec()},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "none": {"compressors": None},
    "transpose": {"filters": zarr.codecs.TransposeCodec(order=(1, 0)), "compressors": zarr.codecs.ZstdCodec()},
    "shards": {"shards": (20, 3)},
}
CODECS_2 = {
    "v2 zstd": {"compressors": numcodecs.Zstd()},
    "v2 blosc": {"compressors": numcodecs.Blosc()},
    "v2 lz4": {"compressors": numcodecs.LZ4()},
    "v2 zlib": {"compressors": numcodecs.Zlib()},
    "v2 gzip": {"compressors": numcodecs.GZip()},
    "v2 delta": {"filters": [numcodecs.Delta("<f8")], "compressors": numcodecs.Zstd()},
    "v2 fixed": {"filters": [numcodecs.FixedScaleOffset(0, 10, "<f8", "<i2")], "compressors": numcodecs.Zstd()},
    "v2 order": {"order": "F"},
}


@pytest.mark.parametrize("case", [*CODECS, *CODECS_2])
def test_what_others_write_is_read(foreign, rng, case):
    X = np.round(rng.standard_normal((40, 3)), 1)
    path = foreign(X=X, zarr_format=3 if case in CODECS else 2, **(CODECS | CODECS_2)[case])
    np.testing.assert_allclose(rows_of(path), X, atol=1e-12)  # some filters round


def _python(program, *arguments):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_frame_that_holds_too_little_is_corrupt(foreign):
    path = foreign(compressors=zarr.codecs.ZstdCodec())
    (path / "X/c/1/0").write_bytes(bytes(numcodecs.Zstd().encode(bytes(8))))
    assert "expected 240 bytes once decoded, it holds 8" in found_in(path, "X/c/1/0", CorruptChunk)
    (path / "X/c/1/0").write_bytes(b"something else")
    assert "expected zstd data, found none (no magic number)" in found_in(path, "X/c/1/0", CorruptChunk)


def test_a_file_too_large_to_be_a_chunk_is_not_read(foreign):
    path = foreign()
    with open(path / "X/c/1/0", "ab") as file:
        file.truncate(2**34)
    assert "the file has 17,179,869,184" in found_in(path, "X/c/1/0", UnsafeData)


# --- Metadata that lie ---


def edit(path, name, **changes):
    file = Path(path, name, "zarr.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shape": [10**13, 8]}, "expected at most 100,000,000,000 rows and columns in X, its metadata declare shape"),
        (
            {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**9, 8]}}},
            f"expected chunks of at most {LARGEST_CHUNK_BYTES:,} bytes, its metadata declare 64,000,000,000",
        ),
        (
            {
                "codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "numcodecs.bz2", "configuration": {"level": 1}},
                ]
            },
            r"expected chunks of plain numbers, .* something else \(codecs bytes, bz2\)",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_metadata_that_lie_are_refused_before_reading(foreign, changes, text):
    path = foreign()
    edit(path, "X", **changes)
    with pytest.raises(UnsafeData, match=text):
        open_data(path)


@pytest.mark.parametrize("said", ["many", -7, 1.5, [3], True])
def test_rows_that_are_complete_are_a_number(foreign, said):
    path = foreign()
    zarr.open_group(path, mode="r+").attrs["rows_complete"] = said
    for look in (open_data, open_growing):
        with pytest.raises(DataDamaged, match="expected a number of rows in the attribute 'rows_complete', got"):
            look(path)
    directory = Directory(path.parent, x="X", y="y", rows_per_expert=10, watch=True)
    assert directory.read(None, 5) == []


def test_the_empty_path_is_not_the_working_directory(foreign, monkeypatch):
    monkeypatch.chdir(foreign().parent)
    with pytest.raises(InvalidOption, match="expected a path or URL, got ''"):
        open_source("", rows_per_expert=10, watch=False)


def test_chunks_of_no_rows_are_refused(foreign):
    path = foreign()
    edit(path, "X", chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 3]}})
    with pytest.raises(UnsafeData, match=r"something else \(chunks of shape \(0, 3\)\)"):
        open_data(path)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
def test_whatever_a_codec_raises_names_the_key(foreign):
    path = foreign()
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    edit(path, "X", codecs=[little, {"name": "numcodecs.zlib", "configuration": {"level": 1}}])
    found_in(path, "X/c/", CorruptChunk)  # whichever comes first: no chunk can be decoded so


def test_an_index_that_leads_out_of_its_shard(tmp_path, rng):
    group = zarr.open_group(tmp_path / "s.zarr", mode="w")
    group.create_array("X", data=rng.standard_normal((40, 3)), chunks=(10, 3), shards=(40, 3))
    group.create_array("y", data=rng.standard_normal(40), chunks=(40,))
    file = tmp_path / "s.zarr/X/c/0/0"
    file.write_bytes(file.read_bytes()[:-7])
    assert "expected a shard that is as long as its index says" in found_in(
        tmp_path / "s.zarr", "X/c/0/0", CorruptChunk
    )


def test_encodings_that_are_none():
    for document in ({}, {"zarr_format": 2, "chunks": "x", "dtype": "|O"}, {"zarr_format": 3, "chunk_grid": []}):
        with pytest.raises(UnsafeData, match="here: expected chunks of plain numbers"):
            encoding_of(document, "here")


HOSTILE = """
import sys, pickle
seen = []
sys.addaudithook(lambda event, args: seen.append(args) if event == "pickle.find_class" else None)
from bcmdist.errors import BcmdistError
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.api.gbcm import GBCM
before = len(seen)
for load in (lambda: list(read_all(partitions(open_data(sys.argv[1]), 10))), lambda: GBCM.load(sys.argv[2])):
    try:
        load()
        print("loaded")
    except BcmdistError as error:
        print(type(error).__name__)
print(len(seen) - before)
"""


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["filter", "compressor", "v3", "objects"])
def test_nothing_is_ever_unpickled(foreign, tmp_path, wave, place):
    import pickle

    path = foreign(zarr_format=3 if place == "v3" else 2)
    if place == "v3":
        edit(path, "X", codecs=[{"name": "numcodecs.pickle", "configuration": {}}])
    else:
        file = path / "X/.zarray"
        hostile = {
            "filter": {"filters": [{"id": "pickle"}]},
            "compressor": {"compressor": {"id": "pickle"}},
            "objects": {"dtype": "|O", "filters": [{"id": "pickle"}], "compressor": None, "fill_value": 0},
        }[place]
        file.write_text(json.dumps(json.loads(file.read_text()) | hostile))
    for file in (path / "X").rglob("*0"):
        if file.is_file():
            file.write_bytes(pickle.dumps(Canary(tmp_path / "canary")))
    model = tmp_path / "model"
    gbcm = GBCM.fit(wave[0], GIVEN, model=model)
    blob = model / "blobs" / gbcm.store.record(gbcm.commit)["arrays"]["eta"]
    array = np.array([Canary(tmp_path / "canary")], dtype=object)
    os.unlink(blob)
    np.save(f"{blob}.npy", array, allow_pickle=True)
    os.rename(f"{blob}.npy", blob)
    refused, damaged, events = _python(HOSTILE, path, model).split()
    assert refused == "UnsafeData"
    assert (damaged, events) == ("ModelDamaged", "0")
    assert not (tmp_path / "canary").exists()


# --- Paths ---


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", "%2e%2e/x", "a\0b", "C:\\x", "x" * 300, "..\\x", "", "a//b", "%00"]
)
def test_names_that_could_lead_out_are_refused(stored, name):
    with pytest.raises(UnsafeData, match="expected the name of an array in this group, got"):
        safe_name(name, "here")
    for names in ({"x": name}, {"y": name}):
        with pytest.raises(UnsafeData, match="expected the name of an array in this group, got"):
            open_data(stored, **names)
    assert safe_name("deep/er", "here") == "deep/er"


@pytest.mark.parametrize("url", ["a\0b", "memory://a/../b", "http://127.0.0.1:1/%2e%2e/x"])
def test_urls_that_could_lead_elsewhere_are_refused(url):
    with pytest.raises(UnsafeData, match="expected a path or URL without NUL and"):
        open_data(url)


def test_links_out_of_a_data_set_are_not_followed(stored, tmp_path):
    link = tmp_path / "link.zarr"
    link.symlink_to(stored)  # what the user gives may be one
    assert rows_of(link).shape == (50, 3)
    outside, chunk = tmp_path / "outside", Path(stored, "X/c/3/0")
    chunk.rename(outside)
    inside = Path(stored, "X/c/kept")
    for target, refused in [(outside, True), (inside, False)]:
        inside.write_bytes(outside.read_bytes())
        chunk.symlink_to(target)
        if refused:
            assert "it leads to" in found_in(stored, "X/c/3/0", UnsafeData)
        else:
            assert rows_of(stored).shape == (50, 3)
        chunk.unlink()
    outside.rename(chunk)
    Path(stored, "y").rename(tmp_path / "y")
    Path(stored, "y").symlink_to(tmp_path / "y")
    with pytest.raises(UnsafeData, match=r"key y/zarr.json: expected a file inside the data set"):
        open_data(stored)


def test_a_pipe_in_the_place_of_a_chunk_does_not_hang(foreign):
    path = foreign()
    (path / "X/c/3/0").unlink()
    os.mkfifo(path / "X/c/3/0")
    assert "expected a file, found something else" in found_in(path, "X/c/3/0", UnsafeData)


def test_the_store_of_every_group_that_is_read_is_checked(stored):
    group = open_group(stored)
    assert isinstance(group.store, CheckedStore)
    assert isinstance(group["X"].store, CheckedStore)
