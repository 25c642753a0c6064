"""What the three scripts on the GBCM paper share: their options, and pictures where matplotlib is installed.

Tresp, "The Generalized Bayesian Committee Machine", KDD 2000.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

from bcmdist.api.pictures.paper import HOW_TO_GET


def options(description) -> argparse.ArgumentParser:
    """A parser of `--quick` and `--out`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small version, in seconds")
    parser.add_argument("--out", help="directory of the picture; the current one by default, none with --quick")
    return parser


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
