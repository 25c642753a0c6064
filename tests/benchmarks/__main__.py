"""Methods on data sets, each in a process of its own: figures as JSON, and the page that is made of them.

    cd tests && BCMDIST_DATA=... python -m benchmarks [--sets A,B] [--methods A,B] [--seconds S] [--repeat N] [--again]
    cd tests && python -m benchmarks --list      # sets, methods and which of them have results
    cd tests && python -m benchmarks --write     # examples/guide/benchmarks.md and its pictures, from the results
    pip install 'bcmdist[benchmark]'

Results are in tests/benchmarks/results/. What is there is not run again, but with --again. A method whose package is
not installed is named and left out. Settings are the defaults of `bcmdist fit` for ours, and those of each package's
documentation for the others (baselines.py, peer_models.py).
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the files of this folder import each other by name

import benchmark_page
import records
from baselines import TRAINING_SHARE
from data_sets import SETS
from measurement import THREAD_VARIABLES, record_of
from peers import METHODS, REFERENCE, figures_of, methods_of, reference_figures

SECONDS = 300.0


def names_of(allowed):
    """A parser of names between commas."""

    def parse(text):
        unknown = sorted(set(text.split(",")) - set(allowed))
        if unknown:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(allowed)}, got {','.join(unknown)}")
        return tuple(text.split(","))

    return parse


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser("benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--list", action="store_true", help="print sets and methods, and run nothing")
    made.add_argument("--sets", type=names_of(SETS), default=tuple(SETS), metavar="A,B", help="[default: all]")
    made.add_argument("--methods", type=names_of(METHODS), default=tuple(METHODS), metavar="A,B", help="[default: all]")
    made.add_argument("--seconds", type=float, default=SECONDS, help="for a method on a set [default: %(default)g]")
    made.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of what takes less than a minute")
    made.add_argument("--again", action="store_true", help="also what has results")
    made.add_argument("--write", action="store_true", help="make the page and its pictures, and run nothing")
    made.add_argument("--one", nargs=4, metavar=("METHOD", "SET", "FOLDER", "SOURCE"), help=argparse.SUPPRESS)
    return made


def one(method, name, folder, source, deadline):
    """Figures of a peer, in this process."""
    if method == REFERENCE:
        return reference_figures(SETS[name], Path(source))
    return figures_of(method, Path(folder), SETS[name].task, deadline)


def listing() -> str:
    """Sets with their methods; a * where there is a result."""
    lines = []
    for name, data_set in SETS.items():
        there = records.load(name)
        methods = " ".join(method + "*" * (method in there) for method in methods_of(data_set))
        lines.append(f"{name} ({data_set.task}; {data_set.split_text}): {methods}")
    return "\n".join(lines)


def measure(options, data: Path) -> None:
    """Run what has no result yet, one after the other, with all cores for each."""
    for variable in THREAD_VARIABLES:
        os.environ.pop(variable, None)
    for name in options.sets:
        for method in (method for method in methods_of(SETS[name]) if method in options.methods):
            if method in records.load(name) and not options.again:
                continue
            if not SETS[name].path(data).exists():
                print(f"{name}: skipped, {SETS[name].path(data).name} is not in BCMDIST_DATA", flush=True)
                break
            record = record_of(SETS[name], method, data, seconds=options.seconds, repeat=options.repeat)
            print(f"{name} {METHODS[method].title}: {benchmark_page.line(record)}", flush=True)
            if not record["outcome"].startswith("not installed"):
                records.keep(record)


def main() -> None:
    begun, options = time.perf_counter(), parser().parse_args()
    if options.one:
        print(json.dumps(one(*options.one, begun + TRAINING_SHARE * options.seconds), default=float))
    elif options.list:
        print(listing())
    elif options.write:
        benchmark_page.write()
    elif data := os.environ.get("BCMDIST_DATA"):
        measure(options, Path(data))
    else:
        print("skipped: set BCMDIST_DATA to the folder of the data sets")


if __name__ == "__main__":
    main()
