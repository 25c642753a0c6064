"""The history of a model: what its records alone tell."""


def history(store) -> list[dict]:
    """What every commit of a `ModelStore` holds, oldest first.

    `number`, `format`, `rows`, `partitions` (rows and ledger entries heard; None where a record does not tell)
    and `offsets`.
    """
    records = [store.record(number) for number in store.numbers()]
    return [
        {name: record[name] for name in ("number", "format", "offsets")}
        | {name: record["facts"].get(name) for name in ("rows", "partitions")}
        for record in records
    ]
