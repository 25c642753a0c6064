"""Figure 1 of the GBCM paper: CPU time against training rows K, for one expert and for modules.

    python paper001_figure1.py [--quick] [--out DIRECTORY] [--full] [--minutes 60]

Gaussian process regression on all rows (M = 1) costs K^3, committees of modules of 10 and of 100 rows
cost K; N_Q = 128 query points. What is timed goes from the rows to mean and variance at the
query points: process CPU time on one BLAS thread, the least of some runs.

The paper has no figures in its text but the scaling, and that modules about as large as the
query set cost least.

--full times what a user does instead, `GBCM.fit` with fixed hyper-parameters on a cluster of two workers, from the rows
to the commit, and keeps the seconds and exponents of each run in results/paper001_figure1.json. Tasks, commits and the
ledger then cost about a millisecond a module, so that small modules are never the cheapest.
"""

import time

import numpy as np
from paper001 import keep_on_cluster, options, output, picture
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.app.demo import make_rows
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from published.results import Experiment
from published.tables import Column, Table

QUERY = 128
RUNS = 3
# Rows per module (0: all), the exponent to expect, and the K to time. Below K = 4000 terms in K^2 still weigh.
CURVES = {
    "M = 1": (0, 3, (2000, 4000, 8000, 12_000)),
    "K/M = 10": (10, 1, (2000, 4000, 8000, 16_000, 32_000)),
    "K/M = 100": (100, 1, (2000, 4000, 8000, 16_000, 32_000)),
}
FITTED = 3  # largest K through which the exponent is fitted
FULL = {"M = 1": (1000, 2000, 4000), "K/M = 10": (4000, 8000, 16_000), "K/M = 100": (8000, 16_000, 32_000)}
FULL_RUNS = 5


def regress(X, y, points, module):
    """Mean and variance at the query points from modules of `module` rows."""
    query = prepare(points, kernel=parse_kernel("se", inputs=X.shape[1]), mean=Mean("zero"))
    total, obs = zero(query.size), unweighted(y)
    for a in range(0, len(y), module):
        total = total + expert_message(query, Gaussian(0.1), X[a : a + module], obs[a : a + module])
    return predict_latent(query, Committee(total).posterior, points)


def cpu_seconds(X, y, points, module):
    """The least process CPU time of `RUNS` runs."""

    def once():
        start = time.process_time()
        regress(X, y, points, module)
        return time.process_time() - start

    return min(once() for _ in range(RUNS))


def exponent(rows, seconds):
    """b of seconds ~ rows^b, by least squares in logarithms over the largest K."""
    return np.polyfit(np.log(rows[-FITTED:]), np.log(seconds[-FITTED:]), 1)[0]


def measure(largest):
    """CPU seconds by curve and K, for K up to `largest`, printed on the way."""
    columns = make_rows(max(k for _, _, ks in CURVES.values() for k in ks) + QUERY, sigma=0.0, seed=1, part=0)
    X, y, points = columns["X"][QUERY:], 2.0 * columns["y"][QUERY:] - 1.0, columns["X"][:QUERY]
    regress(X[:100], y[:100], points, 100)  # whatever is done once in a process is not timed
    curves = {}
    for name, (module, _, ks) in CURVES.items():
        rows = [k for k in ks if k <= largest]
        curves[name] = rows, [cpu_seconds(X[:k], y[:k], points, module or k) for k in rows]
    return curves


def show(curves):
    for name, (rows, seconds) in curves.items():
        print(name.ljust(10), "  ".join(f"K = {k}: {s:.3g} s" for k, s in zip(rows, seconds, strict=True)))
    for name, (rows, seconds) in curves.items():
        print(f"{name:10} CPU time ~ K^{exponent(rows, seconds):.2f} (paper: K^{CURVES[name][1]})")
    per_row = {name: seconds[-1] / rows[-1] for name, (rows, seconds) in curves.items()}
    print(f"least per row at the largest K: {min(per_row, key=per_row.get)} (paper: K/M = 100, near N_Q = {QUERY})")


def seconds_of_a_fit(rows, module, runtime) -> float:
    """Seconds from rows to the commit of a committee, with fixed hyper-parameters."""
    columns = make_rows(rows, sigma=0.0, seed=1, part=0)
    how = {"kernel": "se", "mean": "zero", "partition": "chunks", "query": QUERY, "learn": False, "warp": "none"}
    settings = Settings(
        task="regression", rows_per_expert=module or rows, target_transform="none", noise="constant", **how
    )
    begun = time.perf_counter()
    GBCM.fit((columns["X"], 2.0 * columns["y"] - 1.0), settings, runtime=runtime)
    return time.perf_counter() - begun


EXPONENT = Column("exponent", "b", {"exponent": {name: CURVES[name][1] for name in FULL}}, "neither", ".2f")
TABLES = (Table("Time of committees ~ K^b", tuple(FULL), ("exponent",), (EXPONENT,)),)


def full(minutes):
    """Compute what is left, and show all that there is."""
    each = [Experiment(run, "exponent", name) for run in range(FULL_RUNS) for name in FULL]

    def curve(experiment, runtime):
        seconds_of_a_fit(500, 100, runtime)  # whatever is done once in a process is not timed
        module, rows = CURVES[experiment.method][0], FULL[experiment.method]
        seconds = [seconds_of_a_fit(k, module, runtime) for k in rows]
        by_rows = {f"K = {k}": round(s, 3) for k, s in zip(rows, seconds, strict=True)}
        return {"exponent": float(exponent(np.array(rows), np.array(seconds))), **by_rows}

    keep_on_cluster("paper001_figure1", each, curve, TABLES, minutes=minutes)


def draw(figure, curves):
    axes = figure.subplots()
    for (name, (rows, seconds)), line in zip(curves.items(), ("o-", "o-.", "o--"), strict=True):
        axes.loglog(rows, seconds, line, label=f"{name}: K^{exponent(rows, seconds):.2f}")
    axes.set(xlabel="training rows K", ylabel="CPU seconds", title=f"N_Q = {QUERY}")
    axes.tick_params(which="minor", labelbottom=False)
    axes.legend()


def main(args):
    with threadpool_limits(1), output(args) as out:
        curves = measure(largest=4000 if args.quick else 32_000)
        show(curves)
        picture(out / "paper001_figure1.png", lambda figure: draw(figure, curves), size=(5, 4))


if __name__ == "__main__":
    asked = options(__doc__).parse_args()
    if asked.full:
        full(asked.minutes)
    else:
        main(asked)
