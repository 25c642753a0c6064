"""The history of a model: what its records alone tell."""

import contextlib
from datetime import UTC, datetime

from bcmdist.storage.records import record_name


def history(store) -> list[dict]:
    """What every commit of a `ModelStore` holds, oldest first.

    `number`, `format`, `rows`, `partitions` (rows and ledger entries absorbed; None where a record does not tell),
    `offsets`, and `date` in ISO 8601: when the record was stored where it lies now, a copy perhaps.
    """
    records = [store.record(number) for number in store.numbers()]
    return [
        {name: record[name] for name in ("number", "format", "offsets")}
        | {name: record["facts"].get(name) for name in ("rows", "partitions")}
        | {"date": _date(store.storage, record["number"])}
        for record in records
    ]


def _date(storage, number):
    """None where it has been pruned meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return datetime.fromtimestamp(storage.stored_at(record_name(number)), UTC).isoformat(timespec="seconds")
    return None
