"""Methods on data sets, each in a process of its own: figures as JSON, and the page that is made of them.

    pip install '.[benchmark]'                   # in a checkout
    export BCMDIST_DATA=...                      # the folder of the data sets
    cd tests
    python -m benchmarks --sets A,B --methods A,B --results again
    python -m benchmarks --list                  # sets and methods; a * marks those that have a result
    python -m benchmarks --write                 # examples/guide/benchmarks.md and its pictures, from the results

Methods that have a result in the folder of results are not run, unless --again is given. A method that does not finish
does not replace an earlier result that is finished. A method whose package is not installed is left out. Each method
may use all cores, whatever OMP_NUM_THREADS says. Settings are the defaults of `bcmdist fit` for ours, and those of each
package's documentation for the others (baselines.py, peer_models.py). The exit code is 1 if a method did not finish or
data are missing.
"""

import argparse
from pathlib import Path

import records
from data_sets import SETS
from peers import METHODS

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
    how = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    made = argparse.ArgumentParser("benchmarks", **how)
    made.add_argument("--list", action="store_true", help="print sets and methods, and run nothing")
    made.add_argument("--sets", type=names_of(SETS), default=tuple(SETS), metavar="A,B", help="[default: all]")
    made.add_argument("--methods", type=names_of(METHODS), default=tuple(METHODS), metavar="A,B", help="[default: all]")
    made.add_argument("--seconds", type=float, default=SECONDS, help="for a method on a set [default: %(default)g]")
    made.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of what takes less than a minute")
    made.add_argument(
        "--results", type=Path, default=records.FOLDER, metavar="DIR", help="output folder [default: %(default)s]"
    )
    made.add_argument("--again", action="store_true", help="run methods that have a result, too, and replace it")
    made.add_argument(
        "--write", action="store_true", help="make the page and its pictures from the results of the checkout"
    )
    made.add_argument("--one", nargs=4, metavar=("METHOD", "SET", "FOLDER", "SOURCE"), help=argparse.SUPPRESS)
    return made
