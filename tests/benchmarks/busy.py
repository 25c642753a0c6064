"""A serial fit beside a process that keeps one core busy, over the same fit without it: at most 2.2 on two cores.

    python tests/benchmarks/busy.py [--rows N] [--times K]

`bcmdist fit --serial` of counts, in a process of its own without variables that limit threads. Both kinds of run
alternate, so that what else the machine does falls upon both, and their medians are compared; the load that others make
is printed. On a machine without a free core the ratio says little.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bcmdist import write_dataset
from commands import bcmdist

MOST = 2.2
BUSY = "print(flush=True)\nwhile True: pass"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    for name in [name for name in os.environ if name.endswith("_NUM_THREADS")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "counts.zarr")
        write(data, asked.rows)
        load, found = os.getloadavg()[0], {"quiet": [], "busy": []}
        for number in range(asked.times):
            for kind, context in (("quiet", contextlib.nullcontext), ("busy", busy_process)):
                with context():
                    found[kind].append(fit(data, Path(folder, f"{kind}-{number}")))
                print(f"{kind}: {found[kind][-1]:.1f} s", flush=True)
    quiet, busy = (statistics.median(times) for times in found.values())
    print(f"beside a busy process {busy / quiet:.2f} times the quiet time (at most {MOST})")
    print(f"load of others at the beginning: {load:.1f} on {os.cpu_count()} cores")
    return int(busy > MOST * quiet)


def write(path, rows):
    """Counts in three inputs."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 3))
    write_dataset(path, {"X": X, "y": rng.poisson(np.exp(1.0 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]))})


def fit(data, model) -> float:
    """Seconds of a fit, as it says itself."""
    return bcmdist("fit", data, "--model", model, "--task", "counts", "--serial")["seconds"]


@contextlib.contextmanager
def busy_process():
    """One that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    sys.exit(main())
