"""What messages cost by what experts do with the rest of f, in units of the Gram product V'V that they consist of.

    python tests/benchmarks/residuals.py [--quick] [--json FILE]

One row of the table for each number of rows, of shared variables and residual; figures are ratios of the least times
(of the processor) of one run, in which all are taken in turn:

gaussian    the exact message of rows whose design V is there
laplace     that of rows linearised at given f, likewise
features    both steps, exact, for the weights of random Fourier features
query       both steps, exact, for values at query points, whose columns cost a second product of that size

Without matrices of rows the first two are to be at most `MOST`; a block is there for comparison.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from bcmdist import linalg
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message, gaussian_message
from bcmdist.experts.laplace import laplace_message
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.model.shared.weights import Basis, Weights

MOST = 1.5
NOISE = 0.1
INPUTS = 4
SIZES = ((1000, 250), (1000, 500), (10_000, 500), (10_000, 1000))
QUICK_SIZES = ((1000, 250),)
LARGEST_BLOCK = 1000  # rows; a message of more takes seconds
REPEATS, QUICK_REPEATS = 9, 3


@dataclass(frozen=True)
class Waves(Basis):
    """Random Fourier features."""

    name: ClassVar[str] = "benchmark_waves"
    frequencies: np.ndarray

    @property
    def inputs(self):
        return self.frequencies.shape[1]

    @property
    def functions(self):
        return 2 * len(self.frequencies)

    def features(self, X):
        phase, B = X @ self.frequencies.T, len(self.frequencies)
        columns = np.empty((len(X), 2 * B), order="F")
        np.cos(phase, out=columns[:, :B])
        np.sin(phase, out=columns[:, B:])
        return columns

    def to_arrays(self):
        return {"frequencies": self.frequencies}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["frequencies"])


def cases(rows, size, residual):
    """Functions to time, by name; each makes what it overwrites before its clock starts."""
    rng = np.random.default_rng(0)
    X, kernel, mean = rng.uniform(-2, 2, (rows, INPUTS)), parse_kernel("se", inputs=INPUTS), Mean("zero")
    obs, f = unweighted((rng.standard_normal(rows) > 0) * 1.0), rng.standard_normal(rows)
    query = prepare(rng.uniform(-2, 2, (size, INPUTS)), kernel=kernel, mean=mean, residual=residual)
    scale = np.full(size, np.sqrt(0.9 * 2 / size))
    features = Weights(Waves(rng.standard_normal((size // 2, INPUTS))), scale, kernel, mean, residual)
    V, kind, gaussian, labels = query.design(X), kind_of(query), Gaussian(NOISE), Bernoulli()

    def exact(design):
        return gaussian_message(design, kind.residual(query, design, X), obs.y, gaussian.noise(obs))

    def linearised(design):
        return laplace_message(design, kind.residual(query, design, X), obs, labels, f)

    found = {
        "gram": (lambda: V, linalg.gram),
        "gaussian": (lambda: V.copy(order="F"), exact),
        "laplace": (lambda: V, linearised),
        "query": (lambda: X, lambda X: expert_message(query, gaussian, X, obs)),
    }
    if not kind.couples:  # what random features leave of the kernel is no covariance between rows
        found["features"] = (lambda: X, lambda X: expert_message(features, gaussian, X, obs))
    return found


def least_seconds(timed, repeats):
    """Of the processor, of each of several functions, taken in turn."""
    found = {name: [] for name in timed}
    for _ in range(repeats):
        for name, (given, function) in timed.items():
            argument = given()
            start = time.thread_time()
            function(argument)
            found[name].append(time.thread_time() - start)
    return {name: min(seconds) for name, seconds in found.items()}


def measure(rows, size, residual, repeats):
    """One row of the table."""
    seconds = least_seconds(cases(rows, size, residual), repeats)
    ratios = {name: seconds[name] / seconds["gram"] for name in seconds if name != "gram"}
    return {"rows": rows, "shared": size, "residual": residual, "gram_seconds": seconds["gram"], **ratios}


def measured(quick=False):
    """The rows of the table."""
    with threadpool_limits(1):
        return [
            measure(rows, size, residual, QUICK_REPEATS if quick else REPEATS)
            for rows, size in (QUICK_SIZES if quick else SIZES)
            for residual in ("none", "diagonal", "block")
            if residual != "block" or rows <= LARGEST_BLOCK
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small size, few repeats")
    parser.add_argument("--json", help="file to write the figures to")
    args = parser.parse_args()
    table = measured(args.quick)
    for row in table:
        print(
            "  ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{value!s:>8}" for name, value in row.items()
            )
        )
    worst = max(row[name] for row in table if row["residual"] != "block" for name in ("gaussian", "laplace"))
    print(f"without matrices of rows at most {worst:.2f} Gram products (expected at most {MOST})")
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
