"""The expert `fourier` on rows of a rough field in the plane: what a row costs, what is kept, and whether it is right.

    python tests/benchmarks/fourier.py [--quick] [--rows N] [--json]

The field is drawn from a finer grid of waves than is fitted. Rows come from a Zarr data set; seconds are those of the
processor in the tasks of one process: of the experts alone, and with reading and checking. Memory is that of a process
of its own, which only fits. Means are compared, in their posterior standard deviations, with the dense
solution for the same waves, and with those of a finer tolerance; coverage is that of rows that were held out.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bcmdist import GBCM, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.rows import read_all
from bcmdist.data.writing import append_rows
from bcmdist.experts.contributions import Expert
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.experts import EXPERTS
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.mean import Mean
from bcmdist.runtime.interface import SerialRuntime

WANTED = "rows_per_second_experts >= 1.5e6; peak_gb <= 1.5; message_mb <= 4; dense_gap <= 1e-3; coverage95 .94 to .96"
LENGTHSCALE, NOISE, EDGE = 0.15, 0.1, 1.7320508  # of inputs uniform within +-EDGE, whose standard deviation is 1
CHUNK = 250_000
GIVEN = {"kernel.variance": 1.0, "kernel.lengthscale": LENGTHSCALE, "likelihood.noise_variance": NOISE}
FIT = Settings(kernel="matern32", mean="zero", learn=False, set=GIVEN, expert="fourier", noise="constant")


@dataclass(frozen=True)
class Field:
    """A draw of the prior, and rows of it; targets of unit variance about, so that scaling changes little."""

    tolerance: float
    seed: int = 0

    def rows(self, number, count):
        """X (n, 2), y (n,) and f (n,) of the draw; the `number`-th of such."""
        kernel = parse_kernel("matern32", inputs=2).with_parameters(
            {"variance": np.ones(1), "lengthscale": np.full(2, LENGTHSCALE)}
        )
        known = BasisInputs(
            *(np.zeros((0, 2)), None, np.ones(0), 0, kernel, Mean("zero"), 0, "", 0, "waves"),
            low=np.full(2, -EDGE),
            high=np.full(2, EDGE),
            options=EXPERTS["fourier"].options(self.tolerance),
        )
        shared = EXPERTS["fourier"].shared(known)
        weights = np.random.default_rng(self.seed).standard_normal((1, shared.size))
        rng = np.random.default_rng([self.seed, number])
        X = rng.uniform(-EDGE, EDGE, (count, 2))
        f = shared.design_product(X, weights)[0]
        return X, f + np.sqrt(NOISE) * rng.standard_normal(count), f


def write(path, field, rows, chunk):
    """A data set of so many rows of a field."""
    for number in range(rows // chunk):
        X, y, _ = field.rows(number, chunk)
        append_rows(path, X, y, rows_per_chunk=chunk)


def fit_alone(data, model, tolerance):
    """What a process of its own needs to fit: gigabytes at its peak, and seconds of the processor."""
    command = [sys.executable, __file__, "--fit", data, model, "--tolerance", str(tolerance)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


def fit(data, model, tolerance):
    """Prepare, absorb all rows, and say what it took."""
    gbcm = GBCM.prepare(data, replace(FIT, tolerance=tolerance), model=model)
    parts = partitions(open_data(data), FIT.partition_rows)
    begun = time.process_time()
    gbcm.snapshot.compute_messages(parts, SerialRuntime(), label="experts")
    whole = time.process_time() - begun
    gbcm = gbcm.absorb(parts)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    expert, read = Expert(gbcm.snapshot.reference), [next(iter(read_all([part]))) for part in parts[:4]]
    begun = time.process_time()
    for part, rows in read:
        expert(part, rows)
    alone = time.process_time() - begun
    return {
        "rows_per_second_experts": sum(part.rows for part, _ in read) / alone,
        "rows_per_second_read": gbcm.committee.total.rows / whole,
        "peak_gb": largest * 1024 / 1e9,
    }


def held_out(gbcm, field, count):
    """Coverage of new observations and of f at rows that nobody has absorbed."""
    X, y, f = field.rows(10**6, count)
    predicted = gbcm.predict(X)
    error = (predicted["mean"] - f) / np.sqrt(predicted["variance"])
    return {
        "coverage95": float(np.mean((predicted["lower95"] <= y) & (y <= predicted["upper95"]))),
        "coverage95_latent": float(np.mean(np.abs(error) <= 1.959964)),
        "rmse": float(np.sqrt(np.mean((predicted["mean"] - y) ** 2))),
        "rmse_latent": float(np.sqrt(np.mean((predicted["mean"] - f) ** 2))),
    }


def dense_gap(place, field, rows, tolerance):
    """Largest difference of means from those of the dense solution for the same waves, in standard deviations."""
    X, y, _ = field.rows(10**7, rows)
    gbcm = GBCM.fit((X, y), replace(FIT, tolerance=tolerance), model=place / "small")
    shared, scaling = gbcm.model.shared, gbcm.model.scaling
    new = np.random.default_rng(1).uniform(-EDGE, EDGE, (200, 2))
    V, Vs = (shared.design(scaling.inputs(one)) for one in (X, new))
    K, Ks = V @ V.T + (NOISE + shared.truncated_variance) * np.eye(rows), Vs @ V.T
    mean = Ks @ np.linalg.solve(K, (y - scaling.y_mean) / scaling.y_scale)
    variance = shared.truncated_variance + (Vs**2).sum(axis=1) - np.einsum("ij,ji->i", Ks, np.linalg.solve(K, Ks.T))
    found = (gbcm.predict(new)["mean"] - scaling.y_mean) / scaling.y_scale
    return {
        "dense_rows": rows,
        "dense_weights": shared.size,
        "dense_gap": np.abs(found - mean).max() / variance.min() ** 0.5,
    }


def tolerance_gap(gbcm, finer, count):
    """Differences of means between two tolerances, in standard deviations: root mean square and largest."""
    X = np.random.default_rng(2).uniform(-EDGE, EDGE, (count, 2))
    one, other = gbcm.predict(X), finer.predict(X)
    gap = np.abs(one["mean"] - other["mean"]) / np.sqrt(other["variance"])
    return {"tolerance_gap_rms": float(np.sqrt(np.mean(gap**2))), "tolerance_gap": float(gap.max())}


def main(*, quick=False, rows=10_000_000, tolerance=1e-3):
    """All figures."""
    rows, chunk = (6000, 2000) if quick else (rows, CHUNK)
    tolerance = 0.1 if quick else tolerance
    field = Field(tolerance / 3)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        data, few, model = (str(place / one) for one in ("rows.zarr", "few.zarr", "model"))
        write(data, field, rows, chunk)
        figures = {"rows": rows, **fit_alone(data, model, tolerance)}
        gbcm = GBCM.load(model)
        told = gbcm.info()["waves"]
        figures |= {
            "weights": gbcm.model.shared.size,
            "message_mb": told["message_bytes"] / 1e6,
            "p_eff": gbcm.degrees_of_freedom,
        }
        figures |= {name: told[name] for name in ("mean_error", "steps") if name in told}
        figures |= held_out(gbcm, field, 2000 if quick else 10_000)
        write(few, field, max(chunk, rows // 10), chunk)
        both = [GBCM.fit(few, replace(FIT, tolerance=one)) for one in (tolerance, tolerance / 4)]
        figures |= tolerance_gap(*both, 500 if quick else 5000)
        return figures | dense_gap(place, field, 300 if quick else 5000, 0.2 if quick else 0.02)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", nargs=2, metavar=("DATA", "MODEL"), help="only fit, and say what it took")
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit(*options.fit, options.tolerance)))
        sys.exit()
    figures = main(quick=options.quick, rows=options.rows, tolerance=options.tolerance)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:.4g}")
        print("wanted in full mode:", WANTED)
