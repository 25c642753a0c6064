"""The history of a model, from the records of its commits alone."""

import contextlib
from datetime import UTC, datetime

from bcmdist.storage.records import record_name


def history(store) -> list[dict]:
    """Describe every commit of a `ModelStore`, oldest first.

    Keys are `number`, `format`, `rows` and `partitions` (rows and ledger entries absorbed; None if the record does not
    hold them), `offsets`, and `date` in ISO 8601: when the record was stored in this directory, which may be a copy.
    """
    records = [store.record(number) for number in store.numbers()]
    return [
        {name: record[name] for name in ("number", "format", "offsets")}
        | {name: record["facts"].get(name) for name in ("rows", "partitions")}
        | {"date": _date(store.storage, record["number"])}
        for record in records
    ]


def _date(storage, number):
    """Return when a record was stored, in ISO 8601; None if it has been pruned meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return datetime.fromtimestamp(storage.stored_at(record_name(number)), UTC).isoformat(timespec="seconds")
    return None
