"""Records of `python -m benchmarks`, one JSON file a data set, which is replaced after each method."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
Record = Mapping[str, object]


def load(name: str, folder: Path = FOLDER) -> dict[str, Record]:
    """Records of a data set by method, in the order in which they were added."""
    path = folder / f"{name}.json"
    return {record["method"]: record for record in json.loads(path.read_text())} if path.exists() else {}


def keep(record: Record, folder: Path = FOLDER) -> None:
    """Add a record, in place of the one of the same set and method.

    A process that dies leaves the file with it or without it.
    """
    records = load(record["set"], folder) | {record["method"]: record}
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{record['set']}.partial"
    written.write_text(json.dumps(list(records.values()), indent=1) + "\n")
    os.replace(written, folder / f"{record['set']}.json")
