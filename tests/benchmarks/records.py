"""Records of `python -m benchmarks`, one JSON file a data set, which is replaced after each method; their figures; and
results of other scripts, a file each."""

import json
import os
import statistics
from collections.abc import Mapping
from pathlib import Path

from peers import METHODS

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
    _write(record["set"], list(records.values()), folder)


def load_trial(name: str, folder: Path = FOLDER) -> dict:
    """The result of another script; empty where there is none."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def keep_trial(name: str, found: dict, folder: Path = FOLDER) -> None:
    """Keep the result of another script in place of the one before."""
    _write(name, found, folder)


def _write(name, found, folder):
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"{name}.partial"
    written.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(written, folder / f"{name}.json")


# --- Figures ---


def in_order(found) -> list:
    """Records in the order of the methods, with the runs on splits that all finished methods have."""
    done = [{run["split"] for run in record["runs"]} for record in found.values() if record["outcome"] == "done"]
    common = set.intersection(*done) if done else set()
    return [
        found[name] | {"runs": [r for r in found[name]["runs"] if r["split"] in common or r["outcome"] != "done"]}
        for name in METHODS
        if name in found
    ]


def values(record, name) -> list[float]:
    """A figure, or what it took, of each run that was finished."""
    done = [run for run in record["runs"] if run["outcome"] == "done"]
    return [one for run in done if (one := run.get(name, run["figures"].get(name))) is not None]


def median(record, name) -> float | None:
    """Over the runs; None where there is no such figure."""
    found = values(record, name)
    return statistics.median(found) if found else None
