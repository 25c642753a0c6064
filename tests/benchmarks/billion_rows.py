"""Land and sea on a grid of 933 million cells, absorbed in one pass by a process that is killed on the way.

    python tests/benchmarks/billion_rows.py [--quick] [--rows N] [--kills K] [--workers W] [--model DIR]
        [--linearise own] [--write]

The mask is that of the package global-land-mask; with --quick it is a small one made here. It is read once, packed to
one bit a cell, and decoded when a partition is read. Partition k has the cells k, k + K, k + 2K, ..., and covers the
globe. Inputs are points of the unit sphere, or --inputs lonlat: a fifth of the time, but neither periodic nor
right at the poles. Rows are cells of equal weight, so the poles count for more than their area. Cells of
every 20th tile of 5 degrees are left out of the fit and scored. A run with the same --model continues. Partitions are
linearised under the posterior of those before or, with --linearise own, each at the mode of its rows alone. --write
keeps the result for the page of benchmarks.
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import ExitStack
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import psutil
from distributed import LocalCluster

import records
from bcmdist import GBCM, DaskRuntime, IngestOptions, Settings, register_source
from bcmdist.data.dataset import entry_data
from bcmdist.data.partition import Partition
from bcmdist.data.reader import EntryShape
from bcmdist.data.sources.delivery import Delivery
from bcmdist.runtime.interface import Runtime, SerialRuntime
from measurement import Watched, arguments_without, conditions

ROWS, TILE, EVERY = 1_000_000, 5.0, 20
COMMIT_EVERY = 8  # partitions
SCORED = 200_000  # cells, of which those in the tiles that are left out
BLOCK = 2**24  # bytes of the mask that are read at a time
KERNELS = {"sphere": ("se", 0.4), "lonlat": ("matern32", 0.15)}


@cache
def packed(path):
    """The mask, one bit a cell (set: sea), and its shape; without ever holding a byte a cell."""
    with zipfile.ZipFile(path) as archive, archive.open("mask.npy") as file:
        np.lib.format.read_magic(file)
        shape, _, _ = np.lib.format.read_array_header_1_0(file)
        bits = [np.packbits(np.frombuffer(block, bool)) for block in iter(lambda: file.read(BLOCK), b"")]
    return np.concatenate(bits), shape


def cells(path, numbers):
    """Longitudes and latitudes of the centres of cells, (n,) each, and whether they are land."""
    bits, (rows, columns) = packed(path)
    sea = bits[numbers >> 3] >> (7 - (numbers & 7)).astype(np.uint8) & 1
    row, column = np.divmod(numbers, columns)
    return -180.0 + (column + 0.5) * 360.0 / columns, 90.0 - (row + 0.5) * 180.0 / rows, 1.0 - sea


def held_out(lon, lat):
    """Whether points are in a tile that is left out; tiles are drawn by a hash of their number."""
    tile = (np.floor((lat + 90.0) / TILE) * 72 + np.floor((lon + 180.0) / TILE)).astype(np.int64)
    return one_in(EVERY, tile)


def one_in(every, numbers):
    """Whether numbers are among the one in so many that a hash of the number draws."""
    return numbers * 2654435761 % 2**32 // 2**12 % every == 0


def inputs(lon, lat, kind):
    if kind == "lonlat":
        return np.column_stack([lon, lat])
    a, b = np.radians(lon), np.radians(lat)
    return np.column_stack([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)])


def stride(count, columns, rows):
    """Number of partitions of about so many rows: prime to the columns, so that each partition has all of them."""
    number = max(1, count // rows)
    while math.gcd(number, columns) > 1:
        number += 1
    return number


class Mask:
    """Partitions of mask://FILE?inputs=KIND&rows=ROWS&most=PARTITIONS; the offset is the number of those read."""

    def __init__(self, url, options):
        self.name, self.options = url, options

    def lag(self, after):
        path, given, _ = parsed(self.name)
        shape = packed(path)[1]
        return min(stride(math.prod(shape), shape[1], given["rows"]), given["most"]) - (after or 0)

    def read(self, after, most):
        first = after or 0
        return [Delivery((self.partition(k),), k + 1) for k in range(first, first + min(most, self.lag(first)))]

    def partition(self, k):
        url, names = f"{self.name}#{k}", (self.options.x, self.options.y)
        data = entry_data(url, *names, self.shape(url, *names, ()), self.options.schema)
        return Partition(data, 0, data.rows)

    def ack(self, offset, keys):
        """Nothing waits for it."""

    def close(self):
        """Nothing is open."""

    @staticmethod
    def named(url):
        return url

    @classmethod
    def shape(cls, url, x, y, companions):
        return EntryShape(*decoded(url)[0].shape)

    @staticmethod
    def columns(url, x, y, companions):
        X, land = decoded(url)
        return {x: X} | ({y: land} if y else {})


def parsed(url):
    path, _, rest = url.removeprefix("mask://").partition("?")
    query, _, k = rest.partition("#")
    given = {name: one[0] for name, one in parse_qs(query).items()}
    return path, given | {"rows": int(given["rows"]), "most": int(given["most"])}, int(k or 0)


@lru_cache(maxsize=2)
def decoded(url):
    """Inputs and labels of a partition, without the tiles that are left out."""
    path, given, k = parsed(url)
    shape = packed(path)[1]
    step = stride(math.prod(shape), shape[1], given["rows"])
    lon, lat, land = cells(path, np.arange(k, math.prod(shape), step))
    kept = ~held_out(lon, lat)
    return inputs(lon[kept], lat[kept], given["inputs"]), land[kept]


register_source("mask", Mask, reader=Mask)


def sample(path, count, kind, *, out, seed=0):
    """Cells at random, inside or outside the tiles that are left out."""
    total = math.prod(packed(path)[1])
    lon, lat, land = cells(path, np.random.default_rng(seed).integers(0, total, count))
    kept = held_out(lon, lat) == out
    return inputs(lon[kept], lat[kept], kind), land[kept]


def prepare(path, model, options):
    """A model without rows, whose box is that of the globe."""
    X, y = sample(path, 2000 if options.quick else 50_000, options.inputs, out=False)
    ends = np.array([180.0, 90.0]) if options.inputs == "lonlat" else np.ones(3)
    X, y = np.vstack([X, ends, -ends]), np.append(y, [0.0, 1.0])
    kernel, lengthscale = KERNELS[options.inputs]
    given = {"kernel.variance": 4.0, "kernel.lengthscale": lengthscale}
    kind = {"task": "classification", "kernel": kernel, "mean": "zero", "learn": False, "set": given}
    experts = {"expert": "fourier", "tolerance": 0.1 if options.quick else 0.01, "linearise": options.linearise}
    GBCM.prepare((X, y), Settings(**kind, **experts), model=model)


def ingest(model, url, workers):
    """Absorb what is left of a source; prints seconds of the processors, and bytes of all processes at their peaks."""
    gbcm = GBCM.load(model)
    each = IngestOptions(commit_every=1 if parsed(url)[1]["rows"] < ROWS else COMMIT_EVERY)
    if gbcm.snapshot.facts.linearisation.linearise == "running":  # it commits as it needs
        each = IngestOptions()
    with ExitStack() as stack:
        runtime: Runtime = SerialRuntime()
        if workers:
            cluster = LocalCluster(n_workers=1, threads_per_worker=workers, host="127.0.0.1", dashboard_address=None)
            runtime = stack.enter_context(DaskRuntime(stack.enter_context(cluster)))  # workers import this file
        _, report = gbcm.ingest(gbcm.source(url), each, runtime=runtime)
        own = psutil.Process()
        processes = [own, *own.children(recursive=True)]
        seconds = sum(sum(one.cpu_times()[:2]) for one in processes)
        peak = sum(peak_bytes(one.pid) for one in processes)
    print(json.dumps({"rows": report.rows, "cpu_s": seconds, "peak_gib": peak / 2**30}))


def peak_bytes(process):
    """Largest resident size of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def absorb_with_kills(model, url, options):
    """Ingest in a process of its own, killed by its number after a commit, so many times; what the last one says."""
    command = [sys.executable, __file__, "--ingest", str(model), url, "--workers", str(options.workers)]
    killed, begun = 0, time.monotonic()
    while True:
        before = GBCM.load(model).committee.total.rows
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            while killed < options.kills and child.poll() is None:
                time.sleep(0.1)
                if GBCM.load(model).committee.total.rows > before:
                    os.kill(child.pid, signal.SIGKILL)
                    break
            out = child.communicate()[0]
        if child.returncode == 0:
            return json.loads(out.splitlines()[-1]) | {"kills": killed, "wall_s": time.monotonic() - begun}
        if child.returncode != -signal.SIGKILL:
            raise SystemExit(f"ingest: expected exit code 0, got {child.returncode}; see its errors above")
        killed += 1


def scores(gbcm, X, y):
    """Log loss, that of the share of land, and a calibration table: predicted, observed and cells by tenth."""
    p = np.clip(probability(gbcm, X), 1e-12, 1.0 - 1e-12)
    share, tenth = y.mean(), np.minimum((10 * p).astype(int), 9)
    table = [[p[tenth == k].mean(), y[tenth == k].mean(), int(np.sum(tenth == k))] for k in np.unique(tenth)]
    constant = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    loss = -np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))
    return {"log_loss": float(loss), "log_loss_of_share": float(constant), "calibration": np.array(table).tolist()}


def probability(gbcm, X):
    """Probability of land at rows X."""
    return np.asarray(gbcm.predict(X)["probability"]).reshape(len(X), -1)[:, -1]


def of_sample(path, options, test):
    """Scores of fits to so many cells at random: by spatial cells and defaults, and by the experts of the whole."""
    train = sample(path, options.sample, options.inputs, out=False, seed=2)
    with tempfile.TemporaryDirectory() as name, DaskRuntime(workers=options.workers or 1) as runtime:
        begun = time.monotonic()
        common = {"task": "classification", "effort": "quick"}
        spatial = GBCM.fit(*train, Settings(partition="spatial", **common), model=f"{name}/spatial", runtime=runtime)
        found = {"spatial": scores(spatial, *test) | {"seconds": time.monotonic() - begun}}
        prepare(path, f"{name}/fourier", options)
        fourier = GBCM.load(f"{name}/fourier").partial_fit(*train)
        return found | {"fourier": scores(fourier, *test)}


def coarse_map(gbcm, kind):
    """The probability of land in percent, from north to south, a text for each third degree of latitude."""
    lon, lat = np.meshgrid(np.arange(-178.5, 180.0, 3.0), np.arange(88.5, -90.0, -3.0))
    percent = np.round(100.0 * probability(gbcm, inputs(lon.ravel(), lat.ravel(), kind))).astype(int)
    return [" ".join(map(str, line)) for line in percent.reshape(lon.shape)]


def small_mask(path):
    """A mask of 180 x 360 cells with smooth coasts."""
    lat, lon = np.meshgrid(np.linspace(1.5, -1.5, 180), np.linspace(-3.1, 3.1, 360), indexing="ij")
    np.savez_compressed(path, mask=np.sin(2 * lon) * np.cos(lat) + 0.5 * np.sin(3 * lat) < 0.2)


def main(options):
    """All figures."""
    with tempfile.TemporaryDirectory() as name:
        model, path = Path(options.model or Path(name, "model")), Path(name, "mask.npz")
        if options.quick:
            small_mask(path)
        else:
            path = Path(find_spec("global_land_mask").origin).parent / "globe_combined_mask_compressed.npz"
        rows = 6000 if options.quick else ROWS
        url = f"mask://{path}?inputs={options.inputs}&rows={rows}&most={max(1, options.rows // rows)}"
        if not model.exists():
            prepare(path, model, options)
        with Watched() as watched:
            found = absorb_with_kills(model, url, options)
        gbcm = GBCM.load(model)
        expected = sum(len(decoded(f"{url}#{k}")[1]) for k in range(Mask(url, None).lag(None)))
        found |= {"absorbed": gbcm.committee.total.rows, "expected": expected, "weights": gbcm.model.shared.size}
        found["us_per_row"] = 1e6 * found["cpu_s"] / max(found["rows"], 1)
        test = sample(path, SCORED // 10 if options.quick else SCORED, options.inputs, out=True, seed=1)
        found |= scores(gbcm, *test)
        if options.sample:
            found["of_sample"] = of_sample(path, options, test)
        return found | {"others": round(watched.others, 2), "map": coarse_map(gbcm, options.inputs)}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=10**9, help="absorb about so many at most")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="threads of one worker; 0: no cluster")
    parser.add_argument("--inputs", choices=tuple(KERNELS), default="sphere")
    parser.add_argument("--linearise", choices=("own", "running"), default="running")
    parser.add_argument("--sample", type=int, help="fit as many cells at random, too, for comparison")
    parser.add_argument("--model")
    parser.add_argument("--write", action="store_true", help="keep the result in results/billion_rows.json")
    parser.add_argument("--ingest", nargs=2, metavar=("MODEL", "URL"), help="only absorb")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    if options.ingest:
        ingest(*options.ingest, options.workers)
        sys.exit()
    if options.write and (options.quick or (options.model and Path(options.model).exists())):
        raise SystemExit("--write: expected a whole run, from a new model; leave out --quick, or name a new --model")
    if not options.quick and find_spec("global_land_mask") is None:
        raise SystemExit("expected the package global-land-mask, found none; pip install it, or give --quick")
    found = conditions() | {"options": arguments_without("--write", "--model")} | main(options)
    print(json.dumps(found, indent=1))
    if options.write:
        records.keep_trial("billion_rows", found)
