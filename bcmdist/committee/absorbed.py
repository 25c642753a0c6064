"""Absorbed partitions, from the entries of the ledger, to be read again.

Rows with a copy in the model are read from the copy, whatever has become of their source.
"""

import contextlib
import itertools
from collections.abc import Mapping, Sequence

from bcmdist.committee.fading import weights
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import COMPANIONS, Dataset
from bcmdist.data.partition import Partition, as_absorbed, from_keys
from bcmdist.data.row_copy import RowCopy
from bcmdist.errors import DataNotFound
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.entry import Entry, named_range, names_location


def partitions_of(snapshot: Snapshot, entries: Sequence[Entry], counts: Mapping[str, float]) -> list[Partition]:
    """The partitions of ledger entries, in their order, with weights `counts` by key.

    Raises
    ------
    DataNotFound, InvalidData
        Of rows without a copy, as `from_keys`; or an entry was compacted.
    """
    model = snapshot.model
    refuse_compacted(snapshot, entries)
    sources = iter(from_keys([e.key for e in entries if not e.copy], y=model.y_name, schema=model.schema))
    copies = iter(_copies(snapshot, [e for e in entries if e.copy]))
    return [as_absorbed(next(copies if e.copy else sources), e, counts[e.key]) for e in entries]


def refuse_compacted(snapshot: Snapshot, entries: Sequence[Entry]) -> None:
    """Raise `DataNotFound` if entries were compacted."""
    compacted = [entry.key for entry in entries if entry.compacted]
    if compacted:
        raise DataNotFound(
            f"{snapshot.url}: expected partitions that its ledger lists one by one, got {compacted[0]} (of "
            f"{len(compacted)} such), of which `prune --keep-ledger` has kept only the range of rows: they cannot be "
            "forgotten, or read again; use a backup made before, or fit a new model"
        )


def _copies(snapshot: Snapshot, entries: Sequence[Entry]) -> list[Partition]:
    """The partitions of ledger entries with copies; their data sets, as far as copies tell, are not opened."""
    model, named = snapshot.model, [named_range(entry.key) for entry in entries]
    rows = {array: stop for array, _, stop in sorted(named)}
    fitted = snapshot.facts.survey.companions
    beside = {"weight", *(model.likelihood.companions if fitted is None else fitted)}
    companions = tuple(name for name in COMPANIONS if name in beside)
    found = []
    for entry, (array, start, stop) in zip(entries, named, strict=True):
        url, _, x = array.rpartition("/")
        data = Dataset(url, x, model.y_name, rows[array], model.inputs, rows[array], companions)
        copy = RowCopy(BlobReference(snapshot.url, entry.copy), entry.digest)
        found.append(Partition(data, start, stop, copy=copy))
    return found


def absorbed_partitions(snapshot: Snapshot) -> list[Partition]:
    """The partitions of the ledger with their current weights."""
    return partitions_of(snapshot, snapshot.ledger, weights(snapshot.facts.fading, snapshot.ledger))


def readable_partitions(snapshot: Snapshot) -> list[Partition]:
    """Absorbed partitions whose rows can be read again, ordered by array and first row, with their current weights.

    Left out are those without a copy whose key names no location (`names_location`), or whose data set is gone, and
    those in compacted entries.
    """
    counts = weights(snapshot.facts.fading, snapshot.ledger)
    found: list[Partition] = []
    single = (entry for entry in snapshot.ledger if names_location(entry.key) and not entry.compacted)
    placed = sorted(single, key=_array_and_start)
    for _, entries in itertools.groupby(placed, key=lambda entry: (_array_and_start(entry)[0], bool(entry.copy))):
        with contextlib.suppress(DataNotFound):
            found += partitions_of(snapshot, list(entries), counts)
    return found


def _array_and_start(entry: Entry) -> tuple[str, int]:
    return named_range(entry.key)[:2]
