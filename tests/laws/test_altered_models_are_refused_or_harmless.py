"""Model directories whose content was altered and whose checksums were made right again: named, or harmless.

Nothing may end in an error that nobody foresaw, and no prediction may be NaN.
"""

import contextlib
import hashlib
import io
import itertools
import json
import shutil
import signal
import warnings
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zarr
from conftest import SEED

from bcmdist import GBCM, Settings
from bcmdist.app.cli.output import in_words
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistError, ModelDamaged, NotFinite
from bcmdist.storage.arrays import read_array
from bcmdist.storage.segment import Segment
from problems import Shuffled

ROWS = 60
SECONDS = 20  # of one forgery, before it hangs
BLOB = 64
GOLDEN = Path(__file__).parents[1] / "golden"

KINDS = {
    "gaussian": {"mean": "linear", "partition": "chunks"},
    "real": {"likelihood": "student_t", "passes": "auto"},
    "classes": {"likelihood": "svm"},
    "softmax": {"likelihood": "softmax"},
    "coupled": {"likelihood": "softmax_coupled"},
    "cells": {"partition": "spatial"},
    "cells of classes": {"likelihood": "bernoulli", "partition": "spatial"},
    "ep": {"likelihood": "bernoulli", "approximation": "ep", "passes": "auto"},
    "counts": {"likelihood": "negative_binomial", "passes": "auto"},
    "running": {"likelihood": "poisson", "linearise": "running"},
    "ingested": {"likelihood": "gaussian"},
    "residuals": {"noise": "varying"},
    "local residuals": {"noise": "varying", "partition": "spatial"},
}
# Errors of fewer rows are not measured.
MANY_ROWS = 270


def targets(kind, f, rng):
    if kind in ("softmax", "coupled"):
        return np.digitize(f, [-0.5, 0.5]).astype("u1")
    if kind in ("classes", "cells of classes", "ep"):
        return (f > 0).astype("u1")
    if kind in ("counts", "running"):
        return rng.poisson(np.exp(f)).astype(float)
    return f + 0.1 * rng.standard_normal(len(f))


def make_original(folder, kind):
    """A small model, the data it was fitted to, and further rows."""
    rng = np.random.default_rng(SEED)
    fitted = MANY_ROWS if "residuals" in kind else ROWS
    X = rng.uniform(-2, 2, (fitted + ROWS, 2))
    y = targets(kind, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1], rng)
    for name, rows in (("data", slice(fitted)), ("more", slice(fitted, None)), ("stream/a", slice(None))):
        write_dataset(folder / f"{name}.zarr", {"X": X[rows], "y": y[rows]}, rows_per_chunk=20)
    usual = {"partition": "chunks", "kernel": "se", "query": 8, "rows_per_expert": 20, "learn": False}
    given = Settings(**usual | {"effort": "quick"} | KINDS[kind])
    gbcm = GBCM.fit(folder / "data.zarr", given, model=folder / "model")
    if kind == "ingested":
        gbcm.ingest(
            Shuffled(tuple(partitions(open_data(folder / "stream/a.zarr"), 20)), "s"),
            IngestOptions(half_life=100.0, same_rows="allow"),
        )


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """The folder of a small model of a kind, by `make_original`."""
    root = tmp_path_factory.mktemp("originals")

    def original(kind):
        if not (root / kind).exists():
            make_original(root / kind, kind)
        return root / kind

    return original


# --- Forging ---

WRONG = (
    None,
    True,
    "",
    "x",
    "a" * BLOB,
    "é\0",
    -1,
    0,
    3,
    1e-320,
    1e308,
    -2.5,
    2**70,
    float("nan"),
    float("inf"),
    [],
    {},
)
WRONG += ([None], [1.0], {"x": 1}, [[]], "se*se", "[0:20]", "0:20", [1e400], [-1.0, 0.0])


def paths_in(value, path=()):
    """Places in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths_in(item, (*path, key))


def altered_json(document, rng):
    """Another document, which differs in one place, and what was done."""
    document = json.loads(json.dumps(document))
    path = list(paths_in(document))[rng.integers(sum(1 for _ in paths_in(document)))]
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    what = rng.choice(["wrong", "wrong", "wrong", "gone", "twice", "other"])
    before = parent[path[-1]]
    if what == "gone":
        del parent[path[-1]]
    elif what == "twice" and isinstance(before, list):
        parent[path[-1]] = before + before
    elif what == "other" and isinstance(before, float | int):
        parent[path[-1]] = before * rng.choice([-1, 2, 0.5, 1e6])
    else:
        what = "wrong"
        parent[path[-1]] = WRONG[rng.integers(len(WRONG))]
    return document, f"{'/'.join(map(str, path))} {what} {parent[path[-1]] if what == 'wrong' else ''}"


def _one(array, value):
    array = array.copy()
    if array.size:
        array[tuple(rng_index % n for rng_index, n in zip((1, 1, 0), array.shape, strict=False))] = value
    return array


ARRAYS = {
    "nan": lambda a: _one(a.astype(float), np.nan),
    "inf": lambda a: _one(a.astype(float), np.inf),
    "large": lambda a: _one(a, 1e308 if a.dtype.kind == "f" else 100),
    "negative": lambda a: _one(a.astype(float) if a.dtype.kind == "u" else a, -3),
    "zero": lambda a: _one(a, 0),
    "zeros": lambda a: a * 0,
    "sign": lambda a: -a,
    "twice": lambda a: 2 * a,
    "float32": lambda a: a.astype("f4"),
    "int": lambda a: a.astype("i8"),
    "int32": lambda a: a.astype("i4"),
    "complex": lambda a: a.astype(complex),
    "text": lambda a: a.astype("U8"),
    "bytes": lambda a: a.astype("S8"),
    "bool": lambda a: a.astype(bool),
    "swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "records": lambda a: np.zeros(a.shape, [("a", "f8")]),
    "less": lambda a: a[:-1],
    "more": lambda a: np.concatenate([a, a[-1:]]) if a.ndim else a,
    "none": lambda a: a[:0],
    "axis": lambda a: a[None],
    "flat": lambda a: a.ravel(),
    "scalar": lambda a: a.ravel()[0] if a.size else a[..., None],
    "transposed": lambda a: a.T,
    "turned": lambda a: a[::-1],
    "more columns": lambda a: np.repeat(a, 2, axis=-1),
}


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def zipped(array):
    buffer = io.BytesIO()
    np.savez(buffer, array)
    return buffer.getvalue()


def headed(data, shape, descr):
    """Other words in the header, of the length it had."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return data[:10] + header.ljust(117).encode() + b"\n" + data[128:]


BYTES = {
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "header": lambda data: data[:64],
    "noise": lambda data: bytes(range(256)) * 2,
    "longer": lambda data: data + b"more of it",
    "zip": lambda data: zipped(np.zeros(3)),
    "huge": lambda data: headed(data, (10**12,), "<f8"),
    "objects": lambda data: headed(data, (2,), "|O"),
    "negative shape": lambda data: headed(data, (-2,), "<f8"),
    "no header": lambda data: headed(data, "__import__('os')", "<f8"),
    "open bracket": lambda data: headed(data, "() } (", "<f8"),
    "json": lambda data: b"[[1, 2, 3]]",
    "version": lambda data: data[:6] + b"\x09\x00" + data[8:],
}


def columns_of(data):
    """Header and arrays of a segment of the ledger."""
    first, _, body = data.partition(b"\n")
    header = json.loads(first)
    arrays = {}
    for name, stored in header["arrays"].items():
        count = int(np.prod(stored["shape"]))
        arrays[name] = np.frombuffer(body, stored["dtype"], count, stored["at"]).reshape(stored["shape"])
    return header, arrays


def segment_of(lines, arrays):
    """Bytes of a segment with these arrays, whatever they are."""
    header, body = {"lines": lines, "arrays": {}}, b""
    for name, array in arrays.items():
        header["arrays"][name] = {"dtype": array.dtype.str, "shape": list(array.shape), "at": len(body)}
        body += array.tobytes()
    return json.dumps(header).encode() + b"\n" + body


def altered_header(data, rng):
    header, _, body = data.partition(b"\n")
    return json.dumps(altered_json(json.loads(header), rng)[0]).encode() + b"\n" + body


def altered_column(data, rng):
    header, arrays = columns_of(data)
    name = sorted(arrays)[rng.integers(len(arrays))]
    with np.errstate(all="ignore"):
        changed = np.asarray(ARRAYS[str(rng.choice(list(ARRAYS)))](arrays[name]))
    return segment_of(header["lines"], arrays | {name: changed})


def altered_values(data, rng):
    """One number of one column, at random."""
    header, arrays = columns_of(data)
    filled = sorted(name for name, array in arrays.items() if array.size)
    name = filled[rng.integers(len(filled))]
    flat = arrays[name].ravel().copy()
    flat[rng.integers(len(flat))] = rng.choice([0, 1, 2, 7, 100])
    return segment_of(header["lines"], arrays | {name: flat.reshape(arrays[name].shape)})


SEGMENTS = {
    "header": altered_header,
    "column": altered_column,
    "value": altered_values,
    "json": lambda data, rng: b'[["/d/X[0:20]", "x", 20]]',
    "entries": lambda data, rng: data.replace(b'"lines":', b'"lines":1', 1),
    "deep": lambda data, rng: b"[" * 100_000,
    "noise": lambda data, rng: b"\xff\xfe" + data,
    "torn": lambda data, rng: data[: len(data) // 2],
    "npy": lambda data, rng: npy(np.zeros(3)),
}


def named_blobs(model, record):
    """Names of all blobs that matter to a commit, with what they are."""
    known = {path.name for path in (model / "blobs").iterdir()}
    found = {}

    def look(value, name):
        if isinstance(value, str) and value in known:
            found.setdefault(value, name)
        elif isinstance(value, dict | list):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{name}/{key}")

    look(record, "")
    for digest in list(found):
        data = (model / "blobs" / digest).read_bytes()
        if data[:1] == b"{":
            look([[e.at, e.state, e.copy] for e in Segment(data, "")], found[digest])
        elif found[digest].endswith("halos"):
            look([bytes(row).hex() for row in np.load(io.BytesIO(data))], "/halos")
    return found


def put_blob(model, data):
    digest = hashlib.sha256(data).hexdigest()
    (model / "blobs" / digest).write_bytes(data)
    return digest


def replaced(model, record, before, after):
    """The record with another blob in the place of one, also where other blobs name it."""
    for digest in named_blobs(model, record):
        data = (model / "blobs" / digest).read_bytes()
        if before.encode() in data:
            record = replaced(model, record, digest, put_blob(model, data.replace(before.encode(), after.encode())))
        elif bytes.fromhex(before) in data:
            new = put_blob(model, data.replace(bytes.fromhex(before), bytes.fromhex(after)))
            record = replaced(model, record, digest, new)
    return json.loads(json.dumps(record).replace(before, after))


def forge(model, rng):
    """Alter one thing in the newest commit of a model directory and make all checksums right; what was done."""
    file = max((model / "commits").iterdir())
    record = json.loads(file.read_bytes())
    del record["checksum"]
    blobs = named_blobs(model, record)
    if rng.random() < 0.45:
        record, said = altered_json(record, rng)
    else:
        digest = sorted(blobs, key=lambda blob: blobs[blob])[rng.integers(len(blobs))]
        data = (model / "blobs" / digest).read_bytes()
        if data[:1] == b"{":
            how = str(rng.choice([*["column", "value"] * 3, *SEGMENTS]))
            data = SEGMENTS[how](data, rng)
        elif rng.random() < 0.2:
            how = str(rng.choice(list(BYTES)))
            data = BYTES[how](data)
        else:
            how = str(rng.choice(list(ARRAYS)))
            with np.errstate(all="ignore"):
                data = npy(ARRAYS[how](np.load(io.BytesIO(data))))
        said = f"{blobs[digest]} {how}"
        record = replaced(model, record, digest, put_blob(model, data))
        for number, segment in enumerate(record["segments"]):
            with contextlib.suppress(ModelDamaged, UnicodeDecodeError):
                found = Segment((model / "blobs" / segment).read_bytes(), "")
                record["summaries"][number] = msgspec.to_builtins(found.summary)
    body = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    checksum = hashlib.sha256(body).hexdigest()
    file.write_text(json.dumps({**record, "checksum": checksum}, sort_keys=True, separators=(",", ":")))
    return said


# --- What becomes of it ---

POINTS = np.array([[0.0, 0.0], [1.0, -1.0], [-3.0, 0.5]])


def _predicted(gbcm, folder, numbers):
    out = folder / f"out-{next(numbers)}.zarr"
    gbcm.predict_zarr(folder / "more.zarr", out)
    group = zarr.open_group(out, mode="r")
    return {name: np.asarray(group[name][:]) for name in group.array_keys()}


LATER = {
    "predict": lambda gbcm, folder: None,
    "score": lambda gbcm, folder: gbcm.score(folder / "more.zarr"),
    "forget": lambda gbcm, folder: gbcm.forget([gbcm.ledger[0].key]) if gbcm.ledger else None,
    "more": lambda gbcm, folder: gbcm.partial_fit(folder / "more.zarr", same_rows="allow"),
    "stream": lambda gbcm, folder: gbcm.partial_fit(folder / "stream", same_rows="allow"),
    "refine": lambda gbcm, folder: gbcm.refine(most=2),
    "history": lambda gbcm, folder: (gbcm.store.history(), gbcm.store.prune(1)),
    "degrees": lambda gbcm, folder: gbcm.effective_parameters(),
}


class Hung(BaseException):
    """It took too long."""


def _alarm(*_):
    raise Hung


def outcome(model, folder, expected, later, numbers):
    """What using a model directory leads to: (word, error or None)."""
    signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that overflow: what counts is what is written
            gbcm = GBCM.load(model)
            json.dumps(gbcm.info())
            said = gbcm.predict(POINTS)
            written = _predicted(gbcm, folder, numbers)
            LATER[later](gbcm, folder)
            if later not in ("predict", "score", "degrees"):
                GBCM.load(model).predict(POINTS)
    except BcmdistError as error:
        return "named" if str(error) else "unforeseen", error
    except Hung as error:
        return "hung", error
    except Exception as error:
        return "unforeseen", error
    finally:
        signal.alarm(0)
    if not all(np.isfinite(values).all() for values in (*written.values(), *said.values())):
        return "nan", None
    same = expected is None or all(np.array_equal(said.get(name), values) for name, values in expected.items())
    return "same" if same else "other", None


def campaign(originals, tmp_path, kinds, count, seed):
    """Outcomes of seeded forgeries: (word, kind, what was done, then, error)."""
    rng, numbers, whole = np.random.default_rng(seed), itertools.count(), {}
    for number in range(count):
        kind = kinds[number % len(kinds)]
        folder, kept = originals(kind), tmp_path / "kept"
        if kind not in whole:
            whole[kind] = GBCM.load(folder / "model").predict(POINTS)
        (folder / "model").rename(kept)  # cells are known by the path of their model
        try:
            shutil.copytree(kept, folder / "model")
            said, later = forge(folder / "model", rng), str(rng.choice(list(LATER)))
            word, error = outcome(folder / "model", folder, whole[kind], later, numbers)
        finally:
            shutil.rmtree(folder / "model")
            kept.rename(folder / "model")
        yield word, kind, said, later, error


def assert_all_foreseen(found):
    words = Counter(word for word, *_ in found)
    print(f"seed {SEED}: {dict(words)}")
    wrong = [line for line in found if line[0] in ("unforeseen", "nan", "hung")]
    assert not wrong, "\n".join(map(repr, wrong))
    return words


QUICK = ["gaussian", "softmax", "cells of classes", "ep", "counts", "ingested", "residuals", "local residuals"]


@pytest.mark.slow
def test_what_was_not_altered_is_used(originals):
    numbers = itertools.count()
    for kind, later in itertools.product(QUICK, ["predict", "score", "degrees"]):
        word, error = outcome(originals(kind) / "model", originals(kind), None, later, numbers)
        assert word == "same", (kind, later, error)


@pytest.mark.slow
def test_forgeries_of_valid_checksums_are_foreseen(originals, tmp_path):
    assert_all_foreseen(list(campaign(originals, tmp_path, QUICK, 60, SEED)))


@pytest.mark.nightly
@pytest.mark.slow
def test_many_forgeries_of_valid_checksums_are_foreseen(originals, tmp_path):
    words = assert_all_foreseen(list(campaign(originals, tmp_path, list(KINDS), 500, SEED + 1)))
    assert words["named"] > 150


# --- Told by name ---


def rewrite(model, change):
    """Change the newest record (in place) and make its checksum right."""
    file = max((model / "commits").iterdir())
    record = json.loads(file.read_bytes())
    del record["checksum"]
    change(record)
    body = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    file.write_text(json.dumps({**record, "checksum": hashlib.sha256(body).hexdigest()}))


def with_array(name, alter):
    """A change of the array of that name."""

    def change(model):
        def replace_array(record):
            array = np.load(io.BytesIO((model / "blobs" / record["arrays"][name]).read_bytes()))
            record["arrays"][name] = put_blob(model, npy(alter(array)))

        rewrite(model, replace_array)

    return change


def without_array(name):
    """A change that removes the array of that name."""
    return lambda model: rewrite(model, lambda record: record["arrays"].pop(name))


def with_fact(where, value):
    """A change of one value in the record."""

    def change(model):
        def replace_value(record):
            *path, last = where.split("/")
            for key in path:
                record = record[key]
            record[last] = value

        rewrite(model, replace_value)

    return change


def with_summary(**changed):
    """Other figures in the summary of the first segment."""
    return lambda model: rewrite(model, lambda record: record["summaries"][0].update(changed))


DECISION = {"of": "mean", "taken": "constant", "judge": "evidence"}


def test_decisions_and_cells_of_other_versions_are_read(originals, tmp_path):
    shutil.copytree(originals("gaussian") / "model", tmp_path / "model")
    with_fact("facts/fit/decisions", [DECISION | {"over": {"linear": {"nats": None, "error": None}}}])(
        tmp_path / "model"
    )
    with_fact("facts/fit/cells", {"x": 1})(tmp_path / "model")
    assert "mean: constant" in in_words(GBCM.load(tmp_path / "model").info())["decisions"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_array("eta", lambda a: _one(a, np.nan)), r"finite numbers in eta, found nan at \(1,\)"),
        (with_array("eta", lambda a: a[:-1]), r"float64 of shape \(11,\) in eta, found float64 of shape \(10,\)"),
        (with_array("x_scale", lambda a: -a), "positive numbers in x_scale, found -"),
        (
            with_array("x_mean", lambda a: a + 1e300),
            "a scale above the rounding error of the mean of each column in x_mean, found 1e",
        ),
        (with_array("precision", lambda a: -a), "positive semi-definite matrix in precision"),
        (with_array("precision", lambda a: np.tril(a)), "a symmetric matrix in precision"),
        (with_array("query_factor", lambda a: 2 * a), "the Cholesky factor of the kernel at query_points"),
        (with_array("query_points", lambda a: a[::-1]), "the Cholesky factor of the kernel at query_points"),
        (with_array("x_mean", lambda a: a.astype("U8")), "blob [0-9a-f]{12}: expected an array of numbers, found <U8"),
        (with_fact("facts/model/kernel_parameters/variance", [2.0]), "the Cholesky factor of the kernel"),
        (
            with_fact("facts/model/kernel_parameters/variance", [-1.0]),
            "a number > 0.0 as kernel_parameters.variance",
        ),
        (with_fact("facts/model/y_scale", 0.0), "a number > .* as y_scale, found 0.0"),
        (with_fact("facts/model/y_scale", 1e300), r"a number < .* as y_scale, found 1e\+300"),
        (with_fact("facts/fit/passes", [{"pass": "x"}]), r"a whole number as passes\[0\].pass, found 'x'"),
        (with_fact("facts/fit/method", "local"), "cells, for the method local, found"),
        (with_fact("facts/rows", 61), "61 rows in the ledger, as absorbed, found 60"),
        (with_fact("facts/partitions", 4), "4 partitions in the ledger, found 3"),
        (with_fact("segments", []), "0 summaries of segments, found 1"),
        (with_summary(rows=61), "a segment with 3 entries as recorded"),
        (with_summary(arrived=1), "a segment with 3 entries as recorded"),
        (
            with_fact("facts/fit/decisions", [DECISION | {"over": {"linear": {"nats": 1.0}}}]),
            "a field error in decisions",
        ),
        (
            with_fact("facts/fit/decisions", [DECISION | {"over": {"linear": {"error": 1.0}}}]),
            "a field nats in decisions",
        ),
        (with_fact("arrays/eta", "x"), "the hash of a blob as arrays.eta, found .x."),
    ],
)
def test_what_cannot_be_is_named(originals, tmp_path, change, text):
    model = tmp_path / "model"
    shutil.copytree(originals("gaussian") / "model", model)
    change(model)
    with pytest.raises(ModelDamaged, match=rf"model: (commit 2|blob).* expected .*{text}|{text}") as caught:
        GBCM.load(model)
    assert str(caught.value).startswith(f"{model}: ")
    assert str(caught.value).endswith("; restore the directory from a copy")


COUNTS_AND_DIGESTS = [
    (with_array("residuals", lambda a: _one(a, np.nan)), r"finite numbers in residuals, found nan at \(1, 1\)"),
    (with_array("residuals", lambda a: a.astype("f4")), r"float64 of shape \(300, 5\) in residuals, found float32"),
    (with_array("residuals", lambda a: a[:, :3]), r"4 columns or more in residuals, found the shape \(300, 3\)"),
    (with_array("residuals", lambda a: a[:, 1:]), "residuals at places of 2 inputs and a variance for .*, found 2"),
    (with_array("residuals", lambda a: a[0]), r"4 columns or more in residuals, found the shape \(5,\)"),
    (with_array("residuals", lambda a: a[1:]), "299 residuals in residual_counts"),
    (with_array("residual_counts", lambda a: a.astype(float)), "int64 of shape .* in residual_counts, found float64"),
    (with_array("residual_counts", lambda a: -a), "300 residuals in residual_counts"),
    (with_array("residual_counts", lambda a: a + 2**62), "300 residuals in residual_counts"),
    (with_array("residual_counts", lambda a: a[:-1]), r"int64 of shape \(3, 3\) in residual_counts"),
    (with_array("residual_counts", lambda a: a + (np.arange(3) == 2)), "residuals of partitions in the ledger, once"),
    (with_array("residual_digests", lambda a: a[[0, 0, 1]]), "residuals of partitions in the ledger, once each"),
    (with_array("residual_digests", lambda a: a[:, :-1]), r"uint8 of shape \(3, 32\) in residual_digests, found uint8"),
    (without_array("residuals"), "an array residuals, beside other residuals, found none"),
    (without_array("residual_counts"), "an array residual_counts, beside other residuals, found none"),
]


@pytest.mark.parametrize(("change", "text"), COUNTS_AND_DIGESTS)
def test_residuals_that_cannot_be_are_named(tmp_path, change, text):
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "format4/model", model)
    change(model)
    with pytest.raises(ModelDamaged, match=rf"model: commit 4: expected {text}.*; restore the directory from a copy$"):
        GBCM.load(model)


def test_a_prediction_that_is_no_number_is_not_written(originals, tmp_path):
    """Columns of mean 0 may vary as little as they like; then a linear mean has no finite variance at new rows."""
    folder, model = originals("gaussian"), tmp_path / "model"
    shutil.copytree(folder / "model", model)
    with_array("x_mean", lambda a: 0 * a)(model)
    with_array("x_scale", lambda a: a * 1e-300)(model)
    gbcm = GBCM.load(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotFinite, match=r"prediction: expected numbers, got \w+ (nan|inf) at row 0 of 20"):
            gbcm.predict_zarr(folder / "more.zarr", tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize("how", BYTES)
def test_an_array_that_is_none_is_named(how):
    with pytest.raises(ModelDamaged, match=r"here: expected .*; restore the directory from a copy"):
        read_array(BYTES[how](npy(np.zeros((4, 4)))), "here")
