"""What goes wrong with data, models and disks: each fault has an error of its own, in words that are looked after.

The rows of RELIABILITY's fault matrix that concern neither HTTP nor Dask's processes nor ingesters:

    fault                          here                     elsewhere
    torn, flipped, missing chunk   text                     test_integrity: 1,000 flips, 100 losses, torn to any length
    NaN, infinity                  text, any cell           test_partition
    constant column                -                        test_bcm.test_constant_column_and_constant_targets_warn
    duplicate rows                 -                        test_bcm.test_duplicate_rows_and_more_queries_than_rows
    huge outliers                  -                        test_bcm.test_outliers_stay_finite
    wrong dtype, wrong D           text                     test_partition, test_bcm
    empty data, one row            text                     test_bcm.test_one_row, test_shuffle
    labels out of support          text                     test_bcm.test_labels_outside_the_support
    not positive definite          text                     test_linalg
    duplicate query points         -                        test_query, test_bcm
    Laplace does not converge      -                        test_expert
    disk full                      RLIMIT_FSIZE             test_shuffle, test_reordering, test_store
    chunk larger than memory       text                     -
    other version                  -                        test_store.test_a_newer_format_is_refused
    pickle, bomb, lies, paths      text                     test_integrity
"""

import json
import os
import re
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from bcmdist import linalg
from bcmdist.api.gbcm import GBCM
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.writing import write_dataset
from bcmdist.errors import (
    CorruptChunk,
    InvalidData,
    InvalidDtype,
    MemoryLimit,
    MissingChunk,
    ModelDamaged,
    NotPositiveDefinite,
    UnsafeData,
    UnsupportedTarget,
)
from bcmdist.learning.settings import Settings
from bcmdist.runtime.interface import SerialRuntime

GIVEN = Settings(query=10, rows_per_expert=20, learn=False)


def read(path):
    return [rows for _, rows in read_all(partitions(open_data(path), 20))]


def plain(tmp_path, **columns):
    """A data set as zarr writes it."""
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    for name, values in columns.items():
        group.create_array(name, data=values, chunks=(20, *values.shape[1:]))
    return tmp_path / "data.zarr"


def ours(tmp_path, **columns):
    write_dataset(tmp_path / "data.zarr", {"X": np.ones((40, 2)), "y": np.ones(40)} | columns, rows_per_chunk=20)
    return tmp_path / "data.zarr"


def with_metadata(path, **changes):
    file = path / "X/zarr.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return path


def torn(tmp_path):
    path = ours(tmp_path)
    os.truncate(path / "X/c/1/0", 9)
    read(path)


def flipped(tmp_path):
    path = ours(tmp_path)
    data = bytearray((path / "X/c/1/0").read_bytes())
    data[9] ^= 4
    (path / "X/c/1/0").write_bytes(data)
    read(path)


def missing(tmp_path):
    path = plain(tmp_path, X=np.ones((40, 2)), y=np.ones(40))
    (path / "X/c/1/0").unlink()
    read(path)


def missing_of_ours(tmp_path):
    path = ours(tmp_path)
    (path / "X/c/1/0").unlink()
    read(path)


def undecodable(tmp_path):
    path = plain(tmp_path, X=np.random.default_rng(0).random((40, 2)), y=np.ones(40))
    data = bytearray((path / "X/c/1/0").read_bytes())
    (path / "X/c/1/0").write_bytes(data[: len(data) // 2])
    read(path)


def infinite(tmp_path):
    X = np.ones((40, 2))
    X[31, 1] = np.inf
    read(ours(tmp_path, X=X))


def text(tmp_path):
    read(ours(tmp_path, y=np.array(["2020-01-01"] * 40, "M8[D]")))


def other_columns(tmp_path):
    gbcm = GBCM.fit(ours(tmp_path), GIVEN)
    gbcm.score(ours(tmp_path / "b", X=np.ones((40, 3))))


def no_rows(tmp_path):
    read(plain(tmp_path, X=np.ones((0, 2)), y=np.ones(0)))


def labelled_data(tmp_path):
    GBCM.fit(ours(tmp_path, y=np.arange(40) % 3), Settings(task="classification", likelihood="bernoulli", query=5))


def counts(tmp_path):
    GBCM.fit(ours(tmp_path, y=np.arange(40) - 0.5), Settings(task="counts", query=5))


def indefinite(tmp_path):
    linalg.cholesky(np.diag([1.0, -1e-3]), name="test")


def large_chunk(tmp_path):
    path = plain(tmp_path, X=np.ones((40, 2)), y=np.ones(40))
    with_metadata(path, chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**8, 2]}})
    GBCM.fit(path, GIVEN, runtime=SerialRuntime(allowed_bytes=6e8))


def lying(tmp_path):
    read(with_metadata(plain(tmp_path, X=np.ones((40, 2)), y=np.ones(40)), shape=[10**13, 2]))


def bomb(tmp_path):
    path = plain(tmp_path, X=np.ones((40, 2)), y=np.ones(40))
    (path / "X/c/1/0").write_bytes(bytes(numcodecs.Zstd(1).encode(np.zeros(2**22, "u1"))))
    read(path)


def pickled(tmp_path):
    path = plain(tmp_path, X=np.ones((40, 2)), y=np.ones(40))
    with_metadata(path, codecs=[{"name": "numcodecs.pickle", "configuration": {}}])
    read(path)


def outside(tmp_path):
    path = ours(tmp_path)
    (path / "X/c/1/0").rename(tmp_path / "outside")
    (path / "X/c/1/0").symlink_to(tmp_path / "outside")
    read(path)


def named_outside(tmp_path):
    open_data(ours(tmp_path), x="../X")


def blob(tmp_path):
    gbcm = GBCM.fit(ours(tmp_path), GIVEN, model=tmp_path / "model")
    file = Path(gbcm.url, "blobs", gbcm.store.record(gbcm.commit)["arrays"]["eta"])
    header = b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    file.unlink()
    file.write_bytes(header.ljust(127) + b"\n" + bytes(80))
    GBCM.load(gbcm.url)


SNAPSHOTS = {
    torn: (CorruptChunk, "DIR/data.zarr: key X/c/1/0: 9 of 32 bytes; restore it from a copy"),
    flipped: (
        CorruptChunk,
        "DIR/data.zarr: key X/c/1/0: its hash differs, expected #, got #; restore it from a copy, or, if it "
        "was changed on purpose, write the data set again with bcmdist",
    ),
    missing: (
        MissingChunk,
        "DIR/data.zarr: key X/c/1/0: expected a chunk, there is none (zarr would read fill values); restore "
        "it from a copy, or, if it was left out because it holds fill values only, write the array again with"
        " config={'write_empty_chunks': True} (zarr), encoding={'X': {'write_empty_chunks': True}} (xarray), or "
        "`bcmdist import`",
    ),
    missing_of_ours: (
        MissingChunk,
        "DIR/data.zarr: expected all chunks of X, some are missing (key X/c/1/0); restore them from a copy",
    ),
    undecodable: (
        CorruptChunk,
        "DIR/data.zarr: key X/c/1/0: expected a chunk of X (rows 0 to 39 were wanted), decoding failed: Zstd "
        "decompression error: invalid input data; restore it from a copy",
    ),
    infinite: (
        InvalidData,
        "DIR/data.zarr: expected finite numbers (up to 1e+150) in X, got inf at row 31, column 1 (chunk 1; 1 "
        "such values in rows 0 to 39); fill or drop these rows",
    ),
    text: (
        InvalidDtype,
        "DIR/data.zarr: expected real numbers in y, got dtype datetime64[D]; convert it to float64 first",
    ),
    other_columns: (
        InvalidData,
        "DIR/b/data.zarr: expected 2 columns in X, as in training, got 3; give the same columns in the same order",
    ),
    no_rows: (InvalidData, "DIR/data.zarr: expected at least one row and one column in X, got shape (0, 2); add data"),
    labelled_data: (
        UnsupportedTarget,
        "DIR/data.zarr: expected the two class labels 0 and 1 in y for the likelihood bernoulli, got 2 at row 2 "
        "(13 such rows of 0 to 39); recode the targets or choose another --task",
    ),
    counts: (
        UnsupportedTarget,
        "DIR/data.zarr: expected counts 0, 1, 2, ... with positive exposures in y for the likelihood "
        "negative_binomial, got -0.5, exposure 1 at row 0 (40 such rows of 0 to 39); recode the targets or choose "
        "another --task",
    ),
    indefinite: (
        NotPositiveDefinite,
        "test: expected a positive definite matrix, pivot 1 of 2 is not positive (condition number of the "
        "leading block at least 1e+00); likely causes: (a) duplicate points, (b) a lengthscale too long for "
        "the data, (c) a kernel that is no covariance, or noise that is zero; drop duplicates, shorten the "
        "lengthscale or raise the noise",
    ),
    large_chunk: (
        MemoryLimit,
        "expert of 20 rows about 11 shared variables: expected to need at most 0.6 GB per worker thread, "
        "would need 3.46 GB; lower --rows-per-expert or --query, or give workers more memory; write "
        "DIR/data.zarr in smaller chunks: one of 1.6 GB is decoded whole",
    ),
    lying: (
        UnsafeData,
        "DIR/data.zarr: expected at most 100,000,000,000 rows and columns in X, its metadata declare shape "
        "(10000000000000, 2); restore them from a copy",
    ),
    bomb: (
        UnsafeData,
        "DIR/data.zarr: key X/c/1/0: expected 320 bytes once decoded, its 147 bytes hold 4,194,304 or more; "
        "restore it from a copy, or do not trust its source",
    ),
    pickled: (
        UnsafeData,
        "DIR/data.zarr: X: expected chunks of plain numbers, compressed with zstd, blosc, lz4, gzip, zlib or "
        "not at all, found something else (codecs pickle); write the array again with one of these",
    ),
    outside: (
        UnsafeData,
        "DIR/data.zarr: key X/c/1/0: expected a file inside the data set, it leads to DIR/outside; copy the "
        "file to where the link is",
    ),
    named_outside: (
        UnsafeData,
        "DIR/data.zarr: expected the name of an array in this group, got '../X'; give one without '..', '/' "
        "in front, ':' and NUL, of at most 255 bytes",
    ),
    blob: (
        ModelDamaged,
        "DIR/model: blob #: expected the content of its checksum, found another (208 bytes); restore the directory "
        "from a copy",
    ),
}


@pytest.mark.parametrize("fault", SNAPSHOTS, ids=lambda fault: fault.__name__)
@pytest.mark.filterwarnings("ignore:The data type", "ignore:Numcodecs codecs", "ignore::bcmdist.errors.BcmdistWarning")
def test_every_fault_says_where_what_and_what_to_do(fault, tmp_path):
    error, text = SNAPSHOTS[fault]
    with pytest.raises(error) as caught:
        fault(tmp_path)
    assert type(caught.value) is error
    assert shown(caught.value, tmp_path) == text


def shown(error, tmp_path):
    """The text of an error, without what differs from run to run."""
    return re.sub(r"\b[0-9a-f]{12}\b", "#", str(error).replace(str(tmp_path), "DIR"))


@pytest.mark.slow
@given(
    value=st.sampled_from([np.nan, np.inf, -np.inf, 1e308, 5e-324, -0.0]),
    row=st.integers(0, 39),
    column=st.integers(0, 1),
)
@settings(max_examples=20, deadline=None)
def test_any_cell_that_no_model_can_use_is_named(tmp_path_factory, value, row, column):
    X = np.ones((40, 2))
    X[row, column] = value
    path = ours(tmp_path_factory.mktemp("cell"), X=X)
    if abs(value) < 1:
        assert np.array_equal(np.concatenate([rows.X for rows in read(path)]), X)
    else:
        with pytest.raises(InvalidData, match=rf"at row {row}, column {column} \(chunk {row // 20};"):
            read(path)


def test_a_limit_of_the_file_size_leaves_the_model_as_it_was(tmp_path):
    """A disk that is full, as far as a process can see: what was committed is still there, and no more."""
    import resource
    import signal

    path = ours(tmp_path, X=np.random.default_rng(0).random((40, 2)), y=np.arange(40.0))
    gbcm = GBCM.prepare(path, GIVEN, model=tmp_path / "model")
    before = sorted(p.name for p in Path(gbcm.url).rglob("*"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        with pytest.raises(OSError, match="File too large"):
            gbcm.absorb(partitions(open_data(path), 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert sorted(p.name for p in Path(gbcm.url).rglob("*")) == before
    assert GBCM.load(gbcm.url).absorb(partitions(open_data(path), 20)).committee.total.rows == 40
