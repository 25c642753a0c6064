"""The inbox of a model: rows of requests as data sets under the hashes of their idempotency keys.

    ROWS/<hash of key>.zarr       the rows, whole or not there; its attribute `request` is a hash of them
    ROWS/heard/<hash of key>      they were committed

Rows are durable before they are heard. A request that comes again under its key finds them, is heard again, and the
ledger knows it; once it is marked as heard, it is answered without. Under a key that other rows came with it is
refused. A process that dies before the commit leaves rows behind that nobody was told of: they are heard when their
sender asks again.
"""

import contextlib
import hashlib
import os
import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import open_group
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.rows import read_all
from bcmdist.data.schema import Schema, is_text
from bcmdist.data.writing import write_dataset
from bcmdist.errors import ChunkConflict, DataNotFound, InvalidData, InvalidOption, UnsupportedTarget
from bcmdist.model.targets import model_rows
from bcmdist.prediction.new_rows import new_inputs
from bcmdist.storage.disk import sync_directory
from bcmdist.storage.locate import open_storage

KEY = re.compile(r"[\x21-\x7e]{1,200}")
REQUEST = "request"  # attribute: hash of the rows
LOCKS = 64  # requests under different keys seldom wait for each other


@dataclass(frozen=True)
class Received:
    """Rows that are kept."""

    name: str
    """hash of the key"""
    parts: tuple[Partition, ...]
    answer: dict
    """what its sender is told, whenever he asks"""
    heard: bool
    """whether they were committed before"""

    @property
    def rows(self) -> int:
        return self.answer["rows"]


class Inbox:
    """Rows of requests in a directory of their own; any thread may ask."""

    def __init__(self, url: str):
        self.url = url
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def receive(self, gbcm: GBCM, key: str, X, y, **companions) -> Received:
        """Keep the rows of a request: X (n, D), y (n,) in original units, and companions (n,).

        Raises
        ------
        InvalidOption
            The key is none.
        ChunkConflict
            Other rows came under the key.
        InvalidData, InvalidDtype, UnsupportedTarget
            No model, or not this one, can hear the rows; nothing is kept.
        """
        name = hashed(key)
        columns, schema = _columns(gbcm, X, y, companions)
        digest, url = _digest(columns), f"{self.url}/{name}.zarr"
        with self._locks[int(name[:8], 16) % LOCKS]:
            known = _known(url)
            if known is None:
                self._write(gbcm, url, columns, schema, digest)
            elif known != digest:
                raise ChunkConflict(
                    "Idempotency-Key: expected the rows that came under this key before, got others; give new rows a "
                    "key of their own"
                )
            parts = _parts(gbcm, url)
        answer = {"rows": len(columns[gbcm.model.y_name]), "partitions": len(parts), "digest": digest}
        return Received(name, tuple(parts), answer, self._is_heard(name))

    def _write(self, gbcm, url, columns, schema, digest):
        """Rows that the model can hear, durable; else nothing."""
        os.makedirs(self.url, exist_ok=True)
        write_dataset(url, columns, attributes={REQUEST: digest}, schema=schema, y=gbcm.model.y_name)
        try:
            for part, rows in read_all(_parts(gbcm, url)):
                model_rows(gbcm.model, part, rows)
            _make_durable(url)
        except BaseException:
            shutil.rmtree(url)
            raise
        sync_directory(self.url)

    def _is_heard(self, name):
        return os.path.exists(f"{self.url}/heard/{name}")

    def mark_heard(self, received: Received) -> None:
        """Note that rows were committed; without the note, the ledger is asked."""
        with contextlib.suppress(OSError):
            open_storage(self.url).put_if_absent(f"heard/{received.name}", b"")


def hashed(key: str) -> str:
    """A name that is made of an idempotency key.

    Raises
    ------
    InvalidOption
    """
    if not KEY.fullmatch(key):
        raise InvalidOption(
            "Idempotency-Key: expected 1 to 200 printable ASCII characters without spaces, got others; give one for "
            "each set of rows, such as a UUID"
        )
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _known(url):
    """Hash of the rows that are kept at a URL; None where there are none."""
    try:
        return open_group(url).attrs[REQUEST]
    except DataNotFound:
        return None


def _parts(gbcm, url):
    model = gbcm.model
    data = open_data(url, x=model.x_name, y=model.y_name, schema=model.schema)
    return partitions(data, gbcm.snapshot.facts.rows_per_expert)


def _columns(gbcm, X, y, companions):
    """Arrays as they are kept, checked as far as they can be by themselves, and the names in them."""
    model = gbcm.model
    X, y = new_inputs(model, X), np.asarray(y)
    if not len(X) or y.shape != (len(X),):
        raise InvalidData(f"y: expected a target for each of the {len(X)} rows of X, at least one, got {len(y)}")
    y, classes = _targets(y, model.schema.classes)
    columns = {model.x_name: X, model.y_name: y} | {
        name: np.broadcast_to(np.asarray(column, dtype=float), len(X)) for name, column in companions.items()
    }
    for name, column in columns.items():
        if not np.all(np.isfinite(column)):
            raise InvalidData(f"{name}: expected finite numbers, got others; fill or drop them")
    return columns, Schema(model.schema.columns, classes)


def _targets(y, classes):
    """Numbers (n,), of classes with names their own."""
    if not classes:
        if is_text(y):
            raise InvalidData("y: expected numbers as in training, got texts; give numbers")
        return y.astype(float), ()
    number = {name: float(k) for k, name in enumerate(classes)}
    odd = [label for label in y.astype(str).tolist() if label not in number]
    if odd:
        raise UnsupportedTarget(
            f"y: expected classes of the training data ({', '.join(classes[:10])}), got {odd[0]!r:.80}; drop these "
            "rows, or fit a model to data with this class"
        )
    return np.array([number[label] for label in y.astype(str).tolist()]), classes


def _digest(columns):
    """SHA-256 of arrays by name."""
    total = hashlib.sha256()
    for name, column in sorted(columns.items()):
        total.update(f"{name} {column.shape}".encode())
        total.update(np.ascontiguousarray(column, dtype="<f8").tobytes())
    return total.hexdigest()


def _make_durable(url):
    """Have the disk keep all files of a data set before anything counts on them."""
    for path in [*Path(url).rglob("*"), Path(url)]:
        sync_directory(path)
