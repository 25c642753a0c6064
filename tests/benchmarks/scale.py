"""A cluster of 200 workers whose experts cost nothing, and what that says of 1,000 workers and 10^9 rows.

    python tests/benchmarks/scale.py [--quick] [--workers W] [--partitions N ...] [--group N] [--json]

First a simulation (stubs.py): partitions go through the real ingestion on a real Dask cluster, a scheduler in one
process, all workers in another, the client here. Scheduler and client times are seconds on a core of these processes,
with all that Dask does besides (heartbeats of the workers come with time, not with partitions: their share is
measured while nothing happens). On two cores, workers in one process are what the wall waits for.

Then a cost model (cost_model.py): its constants are fitted to the simulation and to messages, sums and commits that
are timed here, one thread, and extrapolated. Bandwidth between workers is taken to be 10 Gbit/s. Full mode takes a few
minutes and is run by hand; quick mode only shows that the benchmark works.
"""

import argparse
import contextlib
import json
import pickle
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import distributed.comm.tcp
import numpy as np
import stubs
from cost_model import Constants, Plan, commit_terms, depth, error_of, expert_terms, fitted, message_terms, projected
from ingest import Commits
from speed import INPUTS, seconds_of
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, DaskRuntime, SerialRuntime, Settings
from bcmdist.committee.ingest import group_size, ingestion, loop
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Listed
from bcmdist.experts.expert import expert_message
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.runtime.dask import sums

WANTED = "scheduler_ms <= 1 a partition, the same for 5,000 to 20,000; client_bytes <= 2000 a partition"
WORKERS, PARTITIONS = 200, (5_000, 10_000, 20_000)
SIZES = ((250, 250), (500, 250), (500, 500), (1000, 500), (1000, 1000))  # rows and query points of timed experts
QUERIES = (125, 250, 500, 1000)  # of timed commits
FAR = {"rows": 10**9, "workers": 1000}
FAR_SIZES = ((500, 500), (1000, 1000), (2000, 1000))
BYTES_A_SECOND = 1.25e9
IDLE_SECONDS = 5.0


# --- The simulation ---


@contextlib.contextmanager
def bytes_received():
    """Bytes of all messages that reach this process over TCP meanwhile: a list with one number."""
    found, take = [0], distributed.comm.tcp.from_frames

    async def taking(frames, *arguments, **options):
        found[0] += sum(memoryview(frame).nbytes for frame in frames)
        return await take(frames, *arguments, **options)

    distributed.comm.tcp.from_frames = taking
    try:
        yield found
    finally:
        distributed.comm.tcp.from_frames = take


@contextlib.contextmanager
def totals_noted():
    """How many workers had something of each total that is asked for meanwhile."""
    found, added = [], sums.WorkerSum.added

    def noting(total):
        found.append(len(total.by_worker))
        return added(total)

    sums.WorkerSum.added = noting
    try:
        yield found
    finally:
        sums.WorkerSum.added = added


def empty_model(folder, query):
    """A model that has absorbed nothing, of so many query points."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2 * query, stubs.INPUTS))
    settings = Settings(partition="chunks", kernel="se", learn=False, query=query, rows_per_expert=2 * query)
    return GBCM.prepare((X, np.sin(X).sum(axis=1)), settings, model=folder)


def stub_source(partitions):
    data = open_data(stubs.url_of(partitions))
    parts = tuple(Partition(data, k * stubs.ROWS, (k + 1) * stubs.ROWS) for k in range(partitions))
    return Listed(parts, f"{stubs.SCHEME}://source")


def ingested(gbcm, partitions, runtime):
    """A model's snapshot once it has absorbed so many stub partitions, each of them once."""
    source = stub_source(partitions)
    snapshot, report = ingestion.ingest(gbcm.snapshot, source, runtime, IngestOptions(), watch=stubs.StubWatch())
    if report.partitions != partitions or snapshot.committee.total.rows != partitions * stubs.ROWS:
        raise AssertionError(f"expected {partitions} partitions, {report.partitions} were absorbed")
    return snapshot


def simulated(folder, partitions, cluster, runtime):
    """Milliseconds and bytes of each partition, of one ingestion."""
    gbcm = empty_model(folder, 8)
    before, client, start = cluster.seconds(), time.process_time(), time.perf_counter()
    with bytes_received() as received, totals_noted() as totals:
        snapshot = ingested(gbcm, partitions, runtime)
    wall, client = time.perf_counter() - start, time.process_time() - client
    scheduler, workers = np.subtract(cluster.seconds(), before)
    return {
        "partitions": partitions,
        "wall_ms": 1e3 * wall / partitions,
        "scheduler_ms": 1e3 * scheduler / partitions,
        "client_ms": 1e3 * client / partitions,
        "workers_ms": 1e3 * workers / partitions,
        "client_bytes": received[0] / partitions,
        "commits": snapshot.commit - gbcm.commit,
        "tree_depth": max(depth(workers, sums.FAN_IN) for workers in totals),
    }


def simulation(folder, workers, counts):
    """Figures of ingestions of so many partitions each, and the scheduler's idle share of a core."""
    with stubs.cluster(workers) as cluster, DaskRuntime(cluster.address) as runtime:
        simulated(folder / "warm", 5 * workers, cluster, runtime)
        before = cluster.seconds()
        time.sleep(IDLE_SECONDS)
        idle = (cluster.seconds()[0] - before[0]) / IDLE_SECONDS
        return [simulated(folder / str(count), count, cluster, runtime) for count in counts], idle


# --- Constants ---


def expert_seconds(n, Q, repeats):
    """Of one Gaussian message."""
    rng = np.random.default_rng(0)
    X, Z, y = rng.standard_normal((n, INPUTS)), rng.standard_normal((Q, INPUTS)), rng.standard_normal(n)
    query = prepare(Z, kernel=parse_kernel("se", inputs=INPUTS), mean=Mean("zero"))
    likelihood, obs = Gaussian(np.array([0.1])), unweighted(y)
    message = expert_message(query, likelihood, X, obs)
    return message, min(seconds_of(lambda: expert_message(query, likelihood, X, obs)) for _ in range(repeats))


def add_seconds(message, repeats):
    """Of receiving one and adding it."""
    sent = pickle.dumps(message)
    return min(seconds_of(lambda: message + pickle.loads(sent)) for _ in range(repeats))


def commit_seconds(folder, Q, repeats):
    """Of a commit of one message about Q query points, on this machine's disk."""
    with Commits() as commits:
        for k in range(repeats):
            ingested(empty_model(folder / f"{Q}-{k}", Q), 1, SerialRuntime())
    return min(commits.seconds)


def measured_constants(folder, sizes, queries, runs, repeats):
    """Constants, and the largest relative error of each fit."""
    timed = [expert_seconds(n, Q, repeats) for n, Q in sizes]
    messages = {message.eta.size: message for message, _ in timed}
    terms = {
        "expert": ([expert_terms(n, Q) for n, Q in sizes], [seconds for _, seconds in timed]),
        "message": ([message_terms(Q) for Q in messages], [len(pickle.dumps(m)) for m in messages.values()]),
        "add": (
            [[len(pickle.dumps(m))] for m in messages.values()],
            [add_seconds(m, 5 * repeats) for m in messages.values()],
        ),
        "commit": ([commit_terms(Q) for Q in queries], [commit_seconds(folder, Q, repeats) for Q in queries]),
    }
    for name in ("scheduler", "client"):
        spent = [run[f"{name}_ms"] * run["partitions"] / 1e3 for run in runs]
        terms[name] = ([(1.0, run["partitions"]) for run in runs], spent)
    fits = {name: fitted(*known) for name, known in terms.items()}
    errors = {name: error_of(*known, fits[name]) for name, known in terms.items()}
    told = statistics.median(run["client_bytes"] for run in runs)
    constants = {name: tuple(float(c) for c in fit) for name, fit in fits.items()}
    return Constants(**constants | {"add": constants["add"][0]}, told_bytes=told), errors


def extrapolated(constants):
    """The far fit, by sizes of experts."""
    policy = {"commit_share": loop.COMMIT_SHARE, "commit_every": loop.COMMIT_SECONDS, "group": group_size.MOST}
    tree = {"fan_in": sums.FAN_IN, "few": sums.FEW, "bytes_a_second": BYTES_A_SECOND}
    plans = [Plan(**FAR, n=n, Q=Q, **tree, **policy) for n, Q in FAR_SIZES]
    return {f"n {plan.n}, Q {plan.Q}": projected(plan, constants) for plan in plans}


# --- What is printed ---


def main(*, quick=False, workers=None, counts=None):
    few, some = (20, (200, 400)) if quick else (WORKERS, PARTITIONS)
    workers, counts = workers or few, counts or some
    sizes = ((60, 40), (120, 40), (120, 80)) if quick else SIZES
    queries = (20, 40, 80) if quick else QUERIES
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1, user_api="blas"):
        runs, idle = simulation(Path(name), workers, counts)
        constants, errors = measured_constants(Path(name), sizes, queries, runs, 2 if quick else 5)
    return {
        "workers": workers,
        "group": group_size.MOST,
        "simulation": runs,
        "scheduler_idle_share": idle,
        "constants": asdict(constants),
        "fit_errors": errors,
        "extrapolated": extrapolated(constants),
    }


def told(figures):
    """Lines to read."""
    yield f"{figures['workers']} workers, groups of up to {figures['group']}; figures of each partition"
    yield from _columns(figures["simulation"])
    yield f"scheduler while nothing happens: {100 * figures['scheduler_idle_share']:.1f} % of a core"
    yield "\nconstants (largest relative error of the fit)"
    for name, value in figures["constants"].items():
        shown = ", ".join(f"{c:.3g}" for c in np.atleast_1d(value))
        yield f"{name:12} {shown}" + (f"  ({figures['fit_errors'][name]:.0%})" if name in figures["fit_errors"] else "")
    yield f"\n{FAR['rows']:,} rows on {FAR['workers']:,} workers"
    yield from _columns([{"experts": name, **found} for name, found in figures["extrapolated"].items()])


def _columns(rows):
    for name in rows[0]:
        yield f"{name:30}" + "".join(f"{_cell(row[name]):>15}" for row in rows)


def _cell(value):
    return value if isinstance(value, str) else f"{value:,.4g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, help=f"simulated workers [default: {WORKERS}; with --quick, 20]")
    parser.add_argument("--partitions", type=int, nargs="+", help="partitions of each simulated ingestion")
    parser.add_argument("--group", type=int, help="partitions of a task [default: as long as is measured]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.group:
        group_size.GROUP = loop.GROUP = group_size.MOST = options.group
    result = main(quick=options.quick, workers=options.workers, counts=options.partitions)
    print(json.dumps(result) if options.json else "\n".join(told(result)))
    if not options.json:
        print("wanted in full mode:", WANTED)
