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


def listing(results: Path) -> str:
    """Sets with their methods; a * where there is a result."""
    lines = []
    for name, data_set in SETS.items():
        there = records.load(name, results)
        methods = " ".join(method + "*" * (method in there) for method in methods_of(data_set))
        lines.append(f"{name} ({data_set.task}; {data_set.split_text}): {methods}")
    return "\n".join(lines)


def measure(options, data: Path) -> bool:
    """Run what has no result yet, one after the other, with all cores for each; return whether all finished."""
    finished = True
    for variable in THREAD_VARIABLES:
        os.environ.pop(variable, None)
    for name in options.sets:
        for method in (method for method in methods_of(SETS[name]) if method in options.methods):
            before = records.load(name, options.results).get(method)
            if before and not options.again:
                print(f"{name} {method}: has a result in {options.results}; --again runs it again", flush=True)
                continue
            if not SETS[name].path(data).exists():
                print(f"{name}: skipped, {SETS[name].path(data).name} is not in BCMDIST_DATA", flush=True)
                finished = False
                break
            print(f"{name} {method}: at most {options.seconds:g} s a run", flush=True)
            record = record_of(SETS[name], method, data, seconds=options.seconds, repeat=options.repeat)
            print(f"{name} {METHODS[method].title}: {benchmark_page.line(record)}", flush=True)
            done = record["outcome"] == "done"
            finished &= done or record["outcome"].startswith("not ")
            if not done and before and before["outcome"] == "done":
                print(f"{name} {method}: the earlier result is kept", flush=True)
            elif not record["outcome"].startswith("not installed"):
                records.keep(record, options.results)
    return finished


def main() -> None:
    begun, options = time.perf_counter(), benchmark_options.parser().parse_args()
    if options.one:
        print(json.dumps(one(*options.one, begun + TRAINING_SHARE * options.seconds), default=float))
    elif options.list:
        print(listing(options.results))
    elif options.write:
        if options.results != records.FOLDER:
            sys.exit("--write: makes the page from the results of the checkout only; leave out --results")
        benchmark_page.write()
    elif data := os.environ.get("BCMDIST_DATA"):
        sys.exit(0 if measure(options, Path(data)) else 1)
    else:
        print("skipped: set BCMDIST_DATA to the folder of the data sets")
        sys.exit(1)


if __name__ == "__main__":
    main()
