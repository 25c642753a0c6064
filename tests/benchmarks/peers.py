"""A committee beside its peers: one table of time, memory, accuracy and coverage.

    BCMDIST_DATA=... python tests/benchmarks/peers.py [--sets A,B] [--methods A,B] [--seconds S] [--out FILE]
    pip install 'bcmdist[benchmark]'

Each method runs on the same rows in a process of its own, without a limit on its threads but those of the machine, and
is measured from outside: seconds on the wall and on the cores, and peak memory, of the process and all that it starts
(a cluster of workers, say), start-up and reading included. A method whose package is not installed is named and left
out. Settings are the defaults of `bcmdist fit` for ours, and those of each package's documentation for the others
(baselines.py, peer_models.py); their training stops early where most of the seconds are over.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from accuracy import BY_NAME, Unfinished, import_parts, names_of, readable, split_options, targets
from peer_models import MODELS

import baselines
from commands import bcmdist, run

SETS = ("uci_concrete", "pol", "kin40k")
OURS = {"bcmdist chunks": "chunks", "bcmdist spatial": "spatial"}
PEERS = {
    "GPyTorch exact": MODELS["exact"],
    "GPyTorch SVGP": baselines.BASELINES["svgp"],
    "GPBoost Vecchia": baselines.BASELINES["gpboost"],
    "MuyGPyS": MODELS["muygps"],
    "LightGBM": baselines.BASELINES["lightgbm"],
    "scikit-learn GP": MODELS["sklearn_gp"],
    "scikit-learn HGB": baselines.BASELINES["hgb"],
}
METHODS = (*OURS, *PEERS)
SECONDS = 300.0
LOOK_SECONDS = 0.1
COLUMNS = {
    "rmse": "RMSE",
    "nmse": "NMSE",
    "mnlp": "MNLP",
    "coverage50": "50 %",
    "coverage80": "80 %",
    "coverage95": "95 %",
    "wall": "s",
    "cores": "core s",
    "megabytes": "peak MB",
}


# --- From outside ---


@dataclass
class Watched:
    """What children that were started in the block, and theirs, have taken; looked at every `LOOK_SECONDS`."""

    wall: float = 0.0
    peak: int = 0
    """bytes of all together"""
    spent: dict[int, float] = field(default_factory=dict)
    """seconds on a core by process, as last seen"""

    def __enter__(self):
        self._others = set(psutil.Process().children(recursive=True))
        self._end, self._thread = threading.Event(), threading.Thread(target=self._watch, daemon=True)
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self._start
        self._end.set()
        self._thread.join()

    def _watch(self):
        while not self._end.wait(LOOK_SECONDS):
            self.look()

    def look(self):
        """Once."""
        resident = 0
        for process in set(psutil.Process().children(recursive=True)) - self._others:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    self.spent[process.pid] = times.user + times.system
                    resident += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak = max(self.peak, resident)

    def figures(self):
        """By column."""
        return {"wall": self.wall, "cores": sum(self.spent.values()), "megabytes": self.peak / 1e6}


def measured(method, folder, seconds):
    """Figures of a method on the parts in a folder; raises `Unfinished`, and says so where it is not installed."""
    train, test = folder / "train.zarr", folder / "test.zarr"
    with Watched() as watched:
        if method in OURS:
            model = folder / OURS[method]
            fit = bcmdist("fit", train, "--model", model, "--partition", OURS[method], seconds=seconds)
            figures = bcmdist("score", model, test, seconds=seconds) | {"note": fit["kernel"]}
        else:
            command = [sys.executable, __file__, "--one", method, str(train), str(test), "--seconds", str(seconds)]
            figures = run(command, seconds=seconds)
    if "none" in figures:
        raise Unfinished(figures["none"])
    return figures | watched.figures()


# --- In a process of its own ---


def one(method, train, test, seconds):
    """Figures of a peer, in this process."""
    deadline = time.perf_counter() + baselines.TRAINING_SHARE * seconds
    try:
        parts = baselines.read(train), baselines.read(test)
        return baselines.figures_by(PEERS[method], *parts, "regression", deadline)
    except ImportError as error:
        return {"none": f"not installed: {error.name}"}


# --- The table ---


def rows_of(name, methods, seconds, data):
    """A row for each method on a data set, as soon as it is there: name, sizes and figures, or why there are none."""
    case = BY_NAME[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        import_parts(data / f"{name}.npz", folder, split_options(case, 0))
        sizes = [len(targets(folder / f"{part}.zarr")) for part in ("train", "test")]
        for method in methods:
            try:
                figures = measured(method, folder, seconds)
            except Unfinished as error:
                figures = {"note": str(error)}
            yield figures | {"set": name, "method": method, "train": sizes[0], "test": sizes[1]}


def table(rows):
    """Markdown, a line for each method on each set."""
    head = ["set", "method", *COLUMNS.values(), "note"]
    lines = [head, ["---", "---", *["--:"] * len(COLUMNS), "---"]]
    for row in rows:
        title = f"{row['set']}, {row['train']} / {row['test']} rows"
        lines.append([title, row["method"], *(shown(row.get(name), name) for name in COLUMNS), row["note"]])
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def shown(value, name):
    if value is None:
        return ""
    return (
        readable(value) if name in ("rmse", "nmse", "mnlp") else f"{value:.2f}" if "cover" in name else f"{value:.0f}"
    )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=names_of(BY_NAME), default=SETS, metavar="A,B", help="[default: %(default)s]")
    parser.add_argument("--methods", type=names_of(METHODS), default=METHODS, metavar="A,B", help="[default: all]")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a command [default: %(default)s]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="figures as JSON, and the table beside it")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "TRAIN", "TEST"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if options.one:
        print(json.dumps(one(*options.one, options.seconds)))
        return
    data = os.environ.get("BCMDIST_DATA")
    if not data:
        print("skipped: set BCMDIST_DATA to the folder of the data sets")
        return
    rows = []
    for name in options.sets:
        for row in rows_of(name, options.methods, options.seconds, Path(data)):
            rows.append(row)
            print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(json.dumps(rows, indent=1, default=np.ndarray.tolist))
    print(table(rows))


if __name__ == "__main__":
    main()
