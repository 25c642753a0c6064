"""Figures of J. Quinonero-Candela's thesis "Learning with Uncertainty" (2004) that show how relevance vectors and
support sets are found, as tables.

    python paper004_figures.py [--quick] [--full] [--minutes 60]

- 2.2: local optima of the evidence of relevance vectors: sinc in 20 rows with a function about each, from random
  precisions and noises, by a quasi-Newton method (the thesis: conjugate gradients), and by adding functions one by one.
- 2.6: Mackey-Glass, 500 rows to learn from and 6000 to predict, at a fixed common lengthscale, and adapted from there
  to the evidence.
- C 3: Mackey-Glass series with noise of a tenth of its deviation, by expectation maximisation from all functions, on
  dictionaries of 250 at a time (subspace EM, figure 2.7), and by adding functions one by one.
- 3.2: KIN40K, 2000 rows, support sets of M rows chosen by the evidence (SGEV) and by the posterior (SGGP), at the
  hyper-parameters of HPEV-rand. Only where kin40k.npz is in the folder of the variable BCMDIST_DATA.

The thesis draws these and prints no figures. --full keeps results in results/paper004_figures.json and goes on from
there, one process a core.
"""

import time
from functools import partial

import numpy as np
from paper004_mackey_glass import LAGS, SPACING, mackey_glass, rows_of
from paper004_tables import by_evidence, chosen, losses, splits_of
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist

from bcmdist import GBCM, Settings
from bcmdist.methods.relevance.learners import Problem, State, direct, posterior
from bcmdist.methods.relevance.sequential import fast
from bcmdist.methods.relevance.sums import sums_of
from published.results import Experiment, data
from published.tables import Column, Table, options, show

SPLITS = 3
TOGETHER = "starts"
# --- 2.2 ---
TOY_ROWS, TOY_NOISE, TOY_LENGTHSCALE, STARTS = 20, 0.1, 2.0, 100
ENDS = ("best of the starts", "median", "worst", "one by one")
# --- 2.6 ---
SERIES_ROWS, SERIES_NEW = 500, 6000
LENGTHSCALES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FIXED, ADAPTED = "fixed", "adapted"
TURNS, WIDEST = 10, 1.5  # alternations, and how far a lengthscale moves in one, in logarithms
# --- C 3 ---
SIZES, DICTIONARY, LARGEST_EM = (500, 1000, 2000), 250, 1000  # EM takes cubic steps
UPDATES = {
    "EM": "em",
    "subspace EM": "em",
    "one by one": "fast",
}
# --- 3.2 ---
SUPPORT = (64, 128, 256, 512)


def bumps(X, centres, lengthscale) -> np.ndarray:
    """Squared exponentials about centres and a constant, (n, M + 1)."""
    return np.column_stack(
        [np.exp(-0.5 * cdist(X / lengthscale, centres / lengthscale, "sqeuclidean")), np.ones(len(X))]
    )


def problem_of(X, y, lengthscale) -> Problem:
    """A function about each row; the constant stays."""
    return Problem(sums_of(bumps(X, X, lengthscale), y, np.ones(len(y))), permanent=1)


def predicted(problem, state, X, Xs, lengthscale) -> np.ndarray:
    return bumps(Xs, X, lengthscale)[:, state.active] @ posterior(problem.sums, state).mean


def local_optima(split, starts=STARTS) -> dict[str, float]:
    """- log evidence, functions and squared error of the ends of random starts, and of the sequential algorithm."""
    rng, new = np.random.default_rng(split), np.linspace(-10.0, 10.0, 200)[:, None]
    X = np.sort(rng.uniform(-10.0, 10.0, TOY_ROWS))[:, None]
    y = np.sinc(X[:, 0] / np.pi) + TOY_NOISE * rng.standard_normal(TOY_ROWS)
    problem, names = problem_of(X, y, TOY_LENGTHSCALE), np.arange(TOY_ROWS + 1)

    def figures(state):
        mean = predicted(problem, state, X, new, TOY_LENGTHSCALE)
        error = np.mean((mean - np.sinc(new[:, 0] / np.pi)) ** 2)
        return -posterior(problem.sums, state).evidence, int(np.sum(state.active < problem.free)), float(error)

    ends = []
    for _ in range(starts):
        alpha, noise = np.append(10.0 ** rng.uniform(-3, 3, TOY_ROWS), 1.0), 10.0 ** rng.uniform(-4, 0)
        ends.append(figures(direct(problem, noise, State(names, alpha, noise))))
    ends.sort()
    by_end = dict(zip(ENDS, (ends[0], ends[starts // 2], ends[-1], figures(fast(problem, 0.01))), strict=True))
    return {
        f"{end} {name}": v
        for end, of in by_end.items()
        for name, v in zip(("evidence", "functions", "error"), of, strict=True)
    }


def by_lengthscale(X, y, lengthscale, *, adapt) -> tuple[Problem, State, float]:
    """Relevance vectors at a lengthscale, or at one that is adapted from there in turn with the precisions."""
    problem = problem_of(X, y, lengthscale)
    state = fast(problem, 0.01)
    best = posterior(problem.sums, state).evidence
    for _ in range(TURNS * adapt):
        held = State(np.arange(len(state.alpha)), state.alpha, state.noise)

        def loss(x, state=state, held=held, lengthscale=lengthscale):
            Phi = bumps(X, X, lengthscale * np.exp(x))[:, state.active]
            return -posterior(sums_of(Phi, y, np.ones(len(y))), held).evidence

        moved = lengthscale * np.exp(minimize_scalar(loss, bounds=(-WIDEST, WIDEST), method="bounded").x)
        at_moved = problem_of(X, y, moved)
        after = fast(at_moved, state.noise, state)
        if (evidence := posterior(at_moved.sums, after).evidence) <= best + 1.0:
            break
        problem, state, lengthscale, best = at_moved, after, moved, evidence
    return problem, state, lengthscale


def adaptation(split, lengthscale, method, rows=SERIES_ROWS, new=SERIES_NEW) -> dict[str, float]:
    """Test error, in units of the variance, and functions."""
    X, y = rows_of(mackey_glass(LAGS * SPACING + (SPLITS + 1) * rows + new))
    some, unseen = slice(split * rows, (split + 1) * rows), slice(len(y) - new, None)
    middle, scale = y[some].mean(), y[some].std()
    Z, unit = (X - middle) / scale, (y - middle) / scale
    problem, state, end = by_lengthscale(Z[some], unit[some], lengthscale, adapt=method == ADAPTED)
    mean = predicted(problem, state, Z[some], Z[unseen], end)
    functions = int(np.sum(state.active < problem.free))
    return {"test": float(np.mean((mean - unit[unseen]) ** 2)), "functions": functions, "end": float(end)}


def algorithms(split, rows, method, effort="normal", new=4000) -> dict[str, float]:
    """Test error, in units of the variance, functions and seconds of a whole fit."""
    X, y = rows_of(mackey_glass(LAGS * SPACING + (SPLITS + 1) * rows + new))
    some = slice(split * rows, (split + 1) * rows)
    noisy = y + 0.1 * y.std() * np.random.default_rng(split).standard_normal(len(y))
    how = {"query": rows, "expert": "rvm", "kernel": "se-iso", "mean": "constant", "effort": effort}
    how["rvm_update"] = UPDATES[method]
    if method == "subspace EM":
        how |= {"rvm_dictionary": rows, "query": min(DICTIONARY, rows // 2)}
    begun = time.perf_counter()
    gbcm = GBCM.fit((X[some], noisy[some]), Settings(**how))
    seconds = time.perf_counter() - begun
    error = np.mean((gbcm.predict(X[-new:])["mean"] - y[-new:]) ** 2) / np.var(y[some])
    return {"test": float(error), "functions": gbcm.info()["query"], "time": seconds}


def support_sets(split, sizes=SUPPORT) -> dict[str, float]:
    """- log evidence a row and test error of support sets of each size, by both criteria."""
    rows, found = splits_of("3.1")[split], {}
    for size in sizes:
        begun = by_evidence(rows, "random", size, "normal")
        for name in ("SGEV", "SGGP"):
            one = chosen(begun, f"hpev-{name.lower()}")
            found[f"{name}, M = {size} evidence"] = float(-one.committee()[1].log_evidence / len(one.y))
            found[f"{name}, M = {size} squared"] = float(losses(*one.predicted("none"), one.ys)[0])
    return found


WIDTHS = {f"lengthscale {one:g}": one for one in LENGTHSCALES}
ROWS = {f"{rows} rows": rows for rows in SIZES}
OPTIMA, SUPPORT_SETS = "2.2", "3.2"
TABLES = (
    Table(
        "Local optima of relevance vectors (figure 2.2)",
        ENDS,
        (OPTIMA,),
        (
            Column("evidence", "- log evidence", form=".2f"),
            Column("functions", "functions", better="neither", form=".1f"),
            Column("error", "squared error of the function", form=".4f"),
        ),
        together=TOGETHER,
        words=f"Ends of {STARTS} random starts; the thesis: many optima, and the lowest may fit noise.",
    ),
    Table(
        "Lengthscales of relevance vectors (figure 2.6), Mackey-Glass",
        (FIXED, ADAPTED),
        WIDTHS,
        (
            Column("test", "test error", form=".2g"),
            Column("functions", "functions", better="neither", form=".0f"),
            Column("end", "lengthscale in the end", better="neither", form=".2f"),
        ),
        ranked=False,
        words="The thesis: errors depend on a fixed lengthscale; adapting finds the best from a wide range of starts.",
    ),
    Table(
        "Algorithms of relevance vectors (paper C, figure 3), Mackey-Glass with noise",
        tuple(UPDATES),
        ROWS,
        (
            Column("test", "test error", form=".2g"),
            Column("functions", "functions", better="neither", form=".0f"),
            Column("time", "seconds of the fit", form=".1f"),
        ),
        ranked=False,
        words="The thesis: subspace EM predicts as well as EM with about as many functions, faster with many rows.",
    ),
    Table(
        "Support sets by evidence and by posterior (figure 3.2), KIN40K",
        tuple(f"{name}, M = {size}" for size in SUPPORT for name in ("SGEV", "SGGP")),
        (SUPPORT_SETS,),
        (Column("evidence", "- log evidence a row"), Column("squared", "squared error", form=".4f")),
        together=TOGETHER,
        words="The thesis: both choose equally good sets.",
    ),
)


def computed(experiment: Experiment, quick=False) -> dict[str, float]:
    """Figures of one split."""
    split, name, method = experiment.split, experiment.set, experiment.method
    if name == OPTIMA:
        return local_optima(split, starts=5 if quick else STARTS)
    if name == SUPPORT_SETS:
        return support_sets(split)
    if name in WIDTHS:
        return adaptation(split, WIDTHS[name], method, *((100, 200) if quick else ()))
    return algorithms(split, *((100, method, "quick", 200) if quick else (ROWS[name], method)))


def experiments(splits) -> list[Experiment]:
    """Of each split in turn; EM of moderate numbers of rows."""
    together = [OPTIMA] + [SUPPORT_SETS] * (data("kin40k") is not None)
    pairs = [(name, TOGETHER) for name in together] + [(name, way) for name in WIDTHS for way in (FIXED, ADAPTED)]
    pairs += [(name, way) for name in ROWS for way in UPDATES if way != "EM" or ROWS[name] <= LARGEST_EM]
    return [Experiment(k, *pair) for k in range(splits) for pair in pairs]


def main():
    args = options(__doc__, "few rows and starts of three figures").parse_args()
    each = experiments(1 if args.quick else SPLITS)
    if args.quick:
        each = [one for one in each if one.set in (OPTIMA, "lengthscale 1", f"{SIZES[0]} rows")]
    show(args, "paper004_figures", each, partial(computed, quick=args.quick), TABLES)


if __name__ == "__main__":
    main()
