"""What the scripts on the GBCM paper share: options, its prior, results from a cluster, and pictures with matplotlib.

Tresp, "The Generalized Bayesian Committee Machine", KDD 2000.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import DaskRuntime
from bcmdist.api.pictures.paper import HOW_TO_GET
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import Query, prepare
from published.results import Results, add_options, completed_in_turn
from published.tables import text

VARIANCE = 10.0  # A of section 7


def options(description) -> argparse.ArgumentParser:
    """A parser of `--quick` and `--out`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small version, in seconds")
    parser.add_argument("--out", help="directory of the picture; the current one by default, none with --quick")
    add_options(parser)
    return parser


def query_set(points, width) -> Query:
    """A query set (Q, D) with the prior of section 7: variance A, and one width for all inputs."""
    kernel = parse_kernel("se", inputs=points.shape[1])
    given = {"variance": np.array([VARIANCE]), "lengthscale": np.full(points.shape[1], width)}
    return prepare(points, kernel=kernel.with_parameters(given), mean=Mean("zero"))


def keep_on_cluster(name, experiments, compute, tables, *, minutes) -> None:
    """Compute what is left by `compute(experiment, runtime)` on a cluster of two workers, and print the tables."""
    results = Results(name)
    if minutes > 0:
        with DaskRuntime(workers=2) as runtime:
            completed_in_turn(results, experiments, lambda one: compute(one, runtime), minutes=minutes)
    print(text(tables, results))


@contextlib.contextmanager
def output(args):
    """The directory for pictures; with `--quick` and no `--out` one that does not outlive the script."""
    if args.quick and not args.out:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    folder = Path(args.out or ".")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def picture(path, draw, *, size):
    """Save what `draw(figure)` paints, or say how to get matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(HOW_TO_GET)
        return
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")
