"""The inbox of a model: the rows of each request, stored as a data set under the hash of its idempotency key.

    ROWS/<identity of the model>/<hash of key>.zarr.zip    the rows, complete or absent; the attribute `request` is a
                                                           hash of the rows
    ROWS/<identity of the model>/<hash of key>.revert*     reverts of the model (`reverts`)

Rows are durable before they are absorbed. On retry a request finds its rows under its key, and the model's ledger shows
whether they were committed. If they were, the response is the same as before; if not, they are absorbed, also where the
model was restored from an older copy or has forgotten them. A key is refused if it was used with other rows. A new
model under an old name has separate keys. If the process dies before the commit, the sender has had no response; the
stored rows are absorbed when the sender retries.

Rows in the ledger are kept, since forgetting and further passes read them again; `sweep` removes the others, some days
after they were last sent (on an object store: first sent).

Several services may share a directory: of those that get the same key at once, one stores the rows, and all give the
same response.
"""

import contextlib
import hashlib
import os
import re
import threading
import time
from dataclasses import dataclass

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture
from bcmdist.data.archive import SUFFIX
from bcmdist.data.dataset import VARIANCE, open_data
from bcmdist.data.groups import open_group
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.rows import read_all
from bcmdist.data.schema import Schema, is_text
from bcmdist.data.writing import packed_dataset
from bcmdist.errors import ChunkConflict, InvalidData, InvalidOption, UnsupportedTarget
from bcmdist.model.targets import model_rows, refuse_target_variance
from bcmdist.prediction.new_rows import new_inputs, refuse_unread
from bcmdist.storage.interface import Storage
from bcmdist.storage.ledger import Ledger
from bcmdist.storage.locate import open_storage
from bcmdist.storage.urls import on_objects

KEY = re.compile(r"[\x21-\x7e]{1,200}")
REQUEST = "request"  # attribute of a data set: hash of the rows
LOCKS = 64  # so many that requests with different keys rarely wait for each other
TEMPORARY_SECONDS = 86_400.0  # age of a temporary file that is certainly abandoned


@dataclass(frozen=True)
class Received:
    """The stored rows of a request."""

    identity: str
    """identity of the model that received the rows"""
    parts: tuple[Partition, ...]
    answer: dict
    """response to every request with these rows under this key"""
    absorbed: bool
    """whether all of the rows are in the ledger"""

    @property
    def rows(self) -> int:
        return self.answer["rows"]


class Inbox:
    """Stored rows of requests to a model; methods may be called from any thread."""

    def __init__(self, url: str):
        self.url = url
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    def receive(self, gbcm: GBCM | Mixture, key: str, X, y, **companions) -> Received:
        """Store the rows of a request, unless they are stored already.

        X is (n, D) and y is (n,), in original units. Companions are (n,); X_variance is (n, D) or (n, D, D), for a
        model with noisy inputs.

        Raises
        ------
        InvalidOption
            The key is invalid, or the model does not use a companion.
        ChunkConflict
            The key was used with other rows.
        InvalidData, InvalidDtype, UnsupportedTarget
            The rows are invalid, or this model cannot absorb them; nothing is stored.
        """
        name = hashed(key)
        columns, schema = _columns(gbcm, X, y, companions)
        digest, url = _digest(columns), f"{self.folder(gbcm)}/{name}{SUFFIX}"
        storage = self.storage(gbcm)
        with self._locks[int(name[:8], 16) % LOCKS]:
            written = not _refreshed(storage, f"{name}{SUFFIX}") and self._write(gbcm, name, columns, schema, digest)
            if open_group(url).attrs[REQUEST] != digest:
                raise ChunkConflict(
                    "Idempotency-Key: expected the rows that came under this key before, got others; give new rows a "
                    "key of their own"
                )
            parts = _parts(gbcm, url)
            absorbed = all(gbcm.snapshot.ledger.holds(part.key) for part in parts)
            if not absorbed:
                _refuse_unfit(gbcm, parts, storage, url, new=written)
        answer = {"rows": len(columns[gbcm.model.y_name]), "partitions": len(parts), "digest": digest}
        return Received(gbcm.snapshot.identity, tuple(parts), answer, absorbed)

    def folder(self, gbcm: GBCM | Mixture) -> str:
        """Return the directory of what requests to a model have sent."""
        return f"{self.url}/{gbcm.snapshot.identity}"

    def storage(self, gbcm: GBCM | Mixture) -> Storage:
        """Return the storage of this directory."""
        return open_storage(self.folder(gbcm))

    def _write(self, gbcm, name, columns, schema, digest):
        """Store rows durably. Return False if another writer has stored rows under this key first."""
        data = packed_dataset(columns, attributes={REQUEST: digest}, schema=schema, y=gbcm.model.y_name)
        return self.storage(gbcm).put_if_absent(f"{name}{SUFFIX}", data)

    def sweep(self, gbcm: GBCM | Mixture, days: float) -> int:
        """Remove rows outside the ledger that were last sent more than `days` ago, and abandoned temporary files.

        Returns
        -------
        Number of removed files.
        """
        folder, storage = self.folder(gbcm), self.storage(gbcm)
        now, removed = time.time(), 0
        ages = {name: 86_400.0 * days for name in storage.names("") if name.endswith(SUFFIX)}
        ages = {name: age for name, age in ages.items() if not _has_rows(gbcm.ledger, f"{folder}/{name}")}
        for name, age in (
            ages | dict.fromkeys(map(os.path.basename, storage.temporary("")), TEMPORARY_SECONDS)
        ).items():
            with contextlib.suppress(FileNotFoundError):
                if now - storage.stored_at(name) > age:
                    storage.remove(name)
                    removed += 1
        return removed


def _has_rows(ledger: Ledger, data: str) -> bool:
    """Whether a ledger has rows of a data set."""
    return next(ledger.arrays(f"{data}/"), None) is not None


def hashed(key: str) -> str:
    """Return the file name for an idempotency key: 32 hexadecimal digits of its SHA-256.

    Raises
    ------
    InvalidOption
        The key is not 1 to 200 printable ASCII characters without spaces.
    """
    if not KEY.fullmatch(key):
        raise InvalidOption(
            "Idempotency-Key: expected 1 to 200 printable ASCII characters without spaces, got others; give one for "
            "each set of rows, such as a UUID"
        )
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _refreshed(storage, name):
    """Return whether there is a name; on a disk, set its modification time to now."""
    try:
        if on_objects(storage.url):
            storage.stored_at(name)
        else:
            os.utime(f"{storage.url}/{name}")
    except FileNotFoundError:
        return False
    return True


def _refuse_unfit(gbcm, parts, storage, url, *, new):
    """Raise an error, without file names, if a model cannot absorb the stored rows; remove them if they are new."""
    try:
        for part, rows in read_all(parts):
            model_rows(gbcm.model, part, rows)
    except BaseException as error:
        if new:
            storage.remove(url.rpartition("/")[2])
        if isinstance(error, InvalidData):
            raise type(error)(str(error).replace(url, "rows")) from error
        raise


def _parts(gbcm, url):
    model = gbcm.model
    data = open_data(url, x=model.x_name, y=model.y_name, schema=model.schema)
    return partitions(data, gbcm.snapshot.facts.survey.rows_per_expert)


def _columns(gbcm, X, y, companions):
    """Return the arrays to store, by name, and their schema; check shapes, classes and that numbers are finite."""
    model = gbcm.model
    for name in companions.keys() - {"weight", "X_variance"}:
        refuse_unread(model, name)
    _check_target_variance(gbcm, companions.get(TARGET_VARIANCE))
    variance = _variance(model, companions.pop("X_variance", None))
    X, y = new_inputs(model, X), np.asarray(y)
    if not len(X) or y.shape != (len(X),):
        raise InvalidData(f"y: expected a target for each of the {len(X)} rows of X, at least one, got {len(y)}")
    y, classes = _targets(y, model.schema.classes)
    columns = {model.x_name: X, model.y_name: y} | {
        name: np.broadcast_to(np.asarray(column, dtype=float), len(X)) for name, column in companions.items()
    }
    columns |= variance
    for name, column in columns.items():
        if not np.all(np.isfinite(column)):
            raise InvalidData(f"{name}: expected finite numbers, got others; fill or drop them")
    return columns, Schema(model.schema.columns, classes)


def _check_target_variance(gbcm, variance):
    """Raise `InvalidData` for known variances of targets that are negative, or missing where training had them."""
    if variance is not None:
        refuse_target_variance(gbcm.model, TARGET_VARIANCE)
        values = np.asarray(variance, dtype=float)
        if len(bad := np.flatnonzero(values < 0)):
            raise InvalidData(
                f"{TARGET_VARIANCE}: expected variances of at least 0, got {values[bad[0]]:g} at row {bad[0]}; "
                "correct it"
            )
    elif TARGET_VARIANCE in (gbcm.snapshot.facts.survey.companions or []):
        raise InvalidData(
            f"{TARGET_VARIANCE}: expected the known variances of the errors of y, as in training, got none; give them, "
            "0 where there is no error but the learned one"
        )


def _variance(model, variance):
    """Return the array of input error variances by its stored name; empty without input errors."""
    if variance is None:
        return {}
    if model.input_errors is None or model.input_errors.variance is not None:
        raise InvalidOption(
            "X_variance: expected a model fitted with noisy inputs whose errors stand beside the rows, this one does "
            "not read it; leave it out"
        )
    return {VARIANCE.format(model.x_name): variance}


def _targets(y, classes):
    """Return targets (n,) as numbers, and class names. Where classes have names, a target is the index of its class."""
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
    """Return the SHA-256 of named arrays."""
    total = hashlib.sha256()
    for name, column in sorted(columns.items()):
        total.update(f"{name} {column.shape}".encode())
        total.update(np.ascontiguousarray(column, dtype="<f8").tobytes())
    return total.hexdigest()
