"""`python -m benchmarks`: methods on data sets, each in a process of its own (benchmark_options.py says how)."""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the files of this folder import each other by name

import benchmark_options
import benchmark_page
import records
from baselines import TRAINING_SHARE
from data_sets import SETS
from measurement import THREAD_VARIABLES, record_of
from peers import METHODS, REFERENCE, figures_of, methods_of, reference_figures


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
    begun, options = time.perf_counter(), benchmark_options.parser().parse_args()
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
