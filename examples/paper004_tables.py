"""Tables of J. Quinonero-Candela's thesis "Learning with Uncertainty" (2004): relevance vectors against Gaussian
processes (2.3 Boston, 2.4 KIN40K), and support sets of reduced-rank Gaussian processes (3.1 KIN40K).

    BCMDIST_DATA=FOLDER python paper004_tables.py [2.3] [2.4] [3.1] [--repeats N] [--quick] [--full] [--minutes 60]

FOLDER holds uci_boston.npz (X, y) and kin40k.npz (X_train, y_train, X_test, y_test). Boston is ten-fold, KIN40K up to
ten disjoint sets of 2000 rows to learn from and 2000 to predict, with 512 support points. --quick: a few generated
rows. --full keeps the losses of each split in results/paper004_tables.json and goes on from there, one process a core,
beginning none after so many minutes.

Losses are of targets of unit variance: squared, absolute, - log density. Our KIN40K is scaled so; the thesis's is not,
and what it prints is shown in our units: divided by `UNIT`. Its table 3.1 gives - log densities that are too high by
log(2 pi) / 2, as 2.4 does not: of errors of variance .0036 it is -1.39 at best, not -.42 (shown less that).

What the thesis leaves open: the "carefully selected" hyper-parameters of SGGP and SGEV are those of HPEV-rand here; all
methods begin where the evidence of the exact process on blocks of rows has its maximum. It climbs to convergence,
then chooses again; here turns are of ten iterations, and one that ends lower is forgotten. Three ways to predict:

    plain       the reduced-rank process itself (eq. 3.27)
    *           augmented by each new point, one at a time (3.29 with its variance corrected)
    rrgp_star   augmented by all support points jointly, as a committee needs it

The order of table 3.1 is kept, but for the - log density of the process that is not augmented, where HPEV-SGEV and
-SGGP are behind; rrgp_star, at hyper-parameters of another model, is worse than the process that is not augmented.
"""

import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.experts.expert import expert_message
from bcmdist.learning.query_selection import select_points
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.shared.query import Query, prepare
from bcmdist.prediction.latent import predict_latent
from published.results import Experiment, data
from published.tables import Column, Table, options, show

# Standard deviation of the targets that the thesis's KIN40K must have had: with it the exact process of table 2.4 has
# all three losses of the thesis there (of our two first sets .211 to .224).
UNIT = 0.217
# The thesis models targets as they are; by default their logarithms are, where that predicts rows left out better.
AS_THEY_ARE = {"target_transform": "none"}
RELEVANCE = {
    "2.3": {"rvm": (0.138, 0.259, 0.469), "rvm_star": (0.135, 0.253, 0.408), "process": (0.092, 0.209, 0.219)},
    "2.4": {
        "rvm": (0.0043, 0.0482, -1.2162),
        "rvm_star": (0.004, 0.0467, -1.3295),
        "process": (0.0024, 0.0334, -1.7446),
    },
}
# - log evidence a row; then, of the plain and the augmented process: absolute, squared, - log density.
SUPPORT = {
    "SGGP": (np.nan, 0.0481, 0.0048, -0.3525, 0.0460, 0.0045, -0.4613),
    "SGEV": (-1.1555, 0.0484, 0.0049, -0.3446, 0.0463, 0.0045, -0.4562),
    "HPEV-rand": (-1.0978, 0.0503, 0.0047, -0.3694, 0.0486, 0.0045, -0.4269),
    "HPEV-SGEV": (-1.3234, 0.0425, 0.0036, -0.4218, 0.0404, 0.0033, -0.5918),
    "HPEV-SGGP": (-1.3274, 0.0425, 0.0036, -0.4217, 0.0405, 0.0033, -0.5920),
}
UNITS = {"2.3": 1.0, "2.4": UNIT}
ROWS, POINTS, SPLITS = 2000, 512, 10
LOSSES = "squared", "absolute", "mnlp", "functions", "mnlp predicted"
WAYS_TO_PREDICT = ("plain", "*", "rrgp_star")
TITLES_OF_WAYS = ("not augmented", "augmented by each new point", "augmented by all support points")
WAYS = ("evidence", *(f"{way} {loss}" for way in WAYS_TO_PREDICT for loss in LOSSES[:3]))
METHODS = {"HPEV-rand": "random", "HPEV-SGEV": "hpev-sgev", "HPEV-SGGP": "hpev-sggp"}


@dataclass(frozen=True)
class Split:
    """Rows to learn from, and rows to predict."""

    X: np.ndarray
    y: np.ndarray
    Xs: np.ndarray
    ys: np.ndarray


def losses(mean, variance, y) -> np.ndarray:
    """Squared, absolute, - log density of normal predictions, (3,)."""
    error = y - mean
    density = 0.5 * np.log(2.0 * np.pi * variance) + 0.5 * error**2 / variance
    return np.array([np.mean(error**2), np.mean(np.abs(error)), np.mean(density)])


def folds(X, y, count):
    """Splits of a cross-validation, with targets of unit variance."""
    fold = np.random.default_rng(0).permutation(len(y)) % count
    unit = (y - y.mean()) / y.std()
    return [Split(X[fold != k], unit[fold != k], X[fold == k], unit[fold == k]) for k in range(count)]


def disjoint(X, y, rows, count):
    """Disjoint splits of as many rows to learn from as to predict."""
    parts = np.random.default_rng(0).permutation(len(y))[: 2 * rows * count].reshape(count, 2, rows)
    return [Split(X[a], y[a], X[b], y[b]) for a, b in parts]


# --- Relevance vectors against Gaussian processes ---


def by_model(gbcm, split) -> np.ndarray:
    """Losses of a model as it stands: without the scale of errors from rows left out."""
    found, noise = gbcm.predict(split.Xs), gbcm.model.likelihood.noise_variance[0] * gbcm.model.scaling.y_scale**2
    return losses(found["mean"], found["variance"] + noise, split.ys)


def relevance(split, method, effort) -> np.ndarray:
    """Losses of a method, its number of functions, and - log density as it predicts by default, (5,)."""
    rows = len(split.y)
    how = {"kernel": "se", "mean": "constant", "query": rows, "rows_per_expert": rows, "effort": effort} | AS_THEY_ARE
    own = {} if method == "process" else {"expert": method, "rvm_lengthscale": "adapted"}
    gbcm = GBCM.fit((split.X, split.y), Settings(partition="chunks", **how, **own))
    return np.array([*by_model(gbcm, split), gbcm.info()["query"], gbcm.score((split.Xs, split.ys))["mnlp"]])


def in_our_unit(losses, unit) -> tuple[float, float, float]:
    """Squared, absolute and - log density of the thesis, of targets of unit variance."""
    squared, absolute, density = losses
    return squared / unit**2, absolute / unit, density - np.log(unit)


# --- Support sets of reduced-rank processes ---


@dataclass(frozen=True)
class Reduced:
    """A reduced-rank process: support points with their prior, the noise, and the rows and new points in its units."""

    query: Query
    likelihood: Gaussian
    X: np.ndarray
    y: np.ndarray
    Xs: np.ndarray
    ys: np.ndarray

    def committee(self, residual="none") -> tuple[Query, Committee]:
        """The shared variables, and the committee of one expert that has absorbed all rows."""
        shared = replace(self.query, residual=residual)
        return shared, Committee(expert_message(shared, self.likelihood, self.X, unweighted(self.y)))

    def predicted(self, residual) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of observations."""
        shared, committee = self.committee(residual)
        mean, variance = predict_latent(shared, committee.posterior, self.Xs)
        return mean, variance + self.likelihood.noise_variance

    def augmented(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and variance of observations by eq. 3.29 (SYSTEMS T13), and the variance of f without v v'/c (3.39).

        Q = V V' + s2 I,  v = k - V v*,  m = k'(Q + v v'/c)^-1 y,  var = s2 + k** - k'(Q + v v'/c)^-1 k
        """
        noise, kernel = float(self.likelihood.noise_variance[0]), self.query.kernel
        V, Vs, k = self.query.design(self.X), self.query.design(self.Xs), kernel.cross(self.X, self.Xs)
        inner = cho_factor(noise * np.eye(V.shape[1]) + V.T @ V)

        def solve(B):
            return (B - V @ cho_solve(inner, V.T @ B)) / noise

        v, prior = k - V @ Vs.T, kernel.diagonal(self.Xs)
        c = np.maximum(prior - np.einsum("ij,ij->i", Vs, Vs), 1e-10 * prior)
        u, a, w = solve(v), solve(self.y), solve(k)
        share = np.einsum("ij,ij->j", k, u) / (c + np.einsum("ij,ij->j", v, u))
        nystrom = prior - np.einsum("ij,ij->j", k, w)
        return k.T @ a - share * (u.T @ self.y), noise + nystrom + share * np.einsum("ij,ij->j", k, u), nystrom


def by_evidence(split, method, support, effort) -> Reduced:
    """Support points and hyper-parameters that the evidence of the reduced-rank process has chosen."""
    how = {"query": support, "rows_per_expert": len(split.y), "kernel": "se", "mean": "zero", "effort": effort}
    how |= AS_THEY_ARE
    gbcm = GBCM.fit((split.X, split.y), Settings(expert="sor", objective="committee", query_method=method, **how))
    scaling = gbcm.model.scaling
    y, ys = ((targets - scaling.y_mean) / scaling.y_scale for targets in (split.y, split.ys))
    inputs = scaling.inputs(split.X), y, scaling.inputs(split.Xs), ys
    return Reduced(gbcm.model.shared, gbcm.model.likelihood, *inputs)


def chosen(one: Reduced, method) -> Reduced:
    """Other support points, chosen greedily at these hyper-parameters, as many."""
    known = {"targets": one.y[:, None], "noise": np.full(len(one.y), one.likelihood.noise_variance[0])}
    points = select_points(one.X, one.query.functions, kernel=one.query.kernel, method=method, **known)
    return replace(one, query=prepare(points, kernel=one.query.kernel, mean=one.query.mean, residual="none"))


def support(split, count, effort) -> dict[str, np.ndarray]:
    """By method - log evidence a row, then losses of the three ways to predict, (10,)."""
    models = {name: by_evidence(split, method, count, effort) for name, method in METHODS.items()}
    models |= {name: chosen(models["HPEV-rand"], f"hpev-{name.lower()}") for name in ("SGGP", "SGEV")}
    found = {}
    for name in SUPPORT:
        one = models[name]
        mean, variance, _ = one.augmented()
        ways = (one.predicted("none"), (mean, variance), one.predicted("augmented"))
        evidence = -one.committee()[1].log_evidence / len(one.y)
        found[name] = np.concatenate([[evidence], *(losses(*way, one.ys) for way in ways)])
    return found


def support_in_our_unit(of_thesis, unit) -> list[float]:
    """A line of table 3.1 as `WAYS` has it, of targets of unit variance, as far as the thesis goes."""
    evidence, *rest = of_thesis
    theirs = [evidence - np.log(unit)]
    for mae, mse, density in (rest[:3], rest[3:]):
        theirs += [mse / unit**2, mae / unit, density - np.log(unit) - 0.5 * np.log(2.0 * np.pi)]
    return theirs


def arm(rows):
    """Rows that stand for KIN40K: how far the end of a folded arm is, of eight angles, and a little noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 8))
    angles = 0.2 * X.cumsum(axis=1)
    y = np.hypot(np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1))
    return X, (y - y.mean()) / y.std() + 0.05 * rng.standard_normal(rows)


def splits_of(table) -> list[Split]:
    """The splits of a table."""
    if table == "2.3":
        boston = np.load(data("uci_boston"))
        return folds(*(boston[name].astype(float) for name in "Xy"), 10)
    kin = np.load(data("kin40k"))
    robot = [np.concatenate([kin[f"{n}_train"], kin[f"{n}_test"]]).astype(float) for n in "Xy"]
    return disjoint(*robot, ROWS, SPLITS)


def generated(table, rows) -> list[Split]:
    """One split of generated rows in place of those of a table."""
    return folds(*arm(rows // 2), 10)[:1] if table == "2.3" else disjoint(*arm(2 * rows), rows, 1)


def computed(experiment: Experiment, quick=False) -> dict[str, float]:
    """Losses of one split of table 2.3 or 2.4 by one method, or of table 3.1 by all."""
    warnings.simplefilter("ignore")
    splits, effort = (generated(experiment.set, 200), "quick") if quick else (splits_of(experiment.set), "normal")
    split = splits[experiment.split]
    if experiment.set == "3.1":
        found = support(split, 32 if quick else POINTS, effort)
        return {f"{name} {loss}": float(v) for name, one in found.items() for loss, v in zip(WAYS, one, strict=True)}
    return dict(zip(LOSSES, relevance(split, experiment.method, effort).tolist(), strict=True))


def of_relevance(number) -> dict[str, dict[str, float]]:
    """A loss of tables 2.3 and 2.4 of the thesis, in our units."""
    return {
        name: {method: in_our_unit(losses, UNITS[name])[number] for method, losses in methods.items()}
        for name, methods in RELEVANCE.items()
    }


def of_support(number) -> dict[str, dict[str, float]]:
    """A figure of table 3.1 of the thesis, in our units; none of the last way."""
    each = {method: support_in_our_unit(figures, UNIT) for method, figures in SUPPORT.items()}
    return {"3.1": {name: one[number] for name, one in each.items() if number < len(one) and np.isfinite(one[number])}}


def support_sets(way, title) -> Table:
    """Table 3.1 by one way to predict."""
    figures = [name for name in WAYS if name.startswith(f"{way} ")]
    columns = [Column(name, TITLES[name.removeprefix(f"{way} ")], of_support(WAYS.index(name))) for name in figures]
    if way == WAYS_TO_PREDICT[0]:
        columns.append(Column(WAYS[0], "- log evidence a row", of_support(0)))
    name = f"Support sets of reduced-rank processes (3.1: KIN40K, 2000 rows), {title}"
    return Table(name, tuple(SUPPORT), ("3.1",), tuple(columns), together="all")


TITLES = dict(zip(LOSSES, ("squared error", "absolute error", "- log density", "functions"), strict=False))
TABLES = (
    Table(
        "Relevance vectors (2.3: Boston, 2.4: KIN40K)",
        ("process", "rvm", "rvm_star"),
        RELEVANCE,
        (
            *(Column(loss, TITLES[loss], of_relevance(k)) for k, loss in enumerate(LOSSES[:3])),
            Column("functions", "functions", better="neither", form=".0f"),
            Column("mnlp predicted", "- log density as predicted"),
        ),
        words="Losses are those of the models, as in the thesis, but for the last column: by default the scale and the "
        "shape of errors are learned from rows left out.",
    ),
    *map(support_sets, WAYS_TO_PREDICT, TITLES_OF_WAYS),
)


def main():
    parser = options(__doc__, "two tables of few generated rows, once")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="2.3, 2.4 or 3.1 [default: all]")
    parser.add_argument("--repeats", type=int, choices=range(1, SPLITS + 1), default=SPLITS, help="splits of each")
    args = parser.parse_args()
    if wrong := set(args.tables) - {*RELEVANCE, "3.1"}:
        parser.error(f"expected tables 2.3, 2.4 and 3.1, got {', '.join(sorted(wrong))}; give some of these")
    tables, repeats = args.tables or [*RELEVANCE, "3.1"], args.repeats
    if args.quick:
        tables, repeats = args.tables or ["2.3", "3.1"], 1
    there = [name for name in tables if args.quick or data("uci_boston" if name == "2.3" else "kin40k")]
    methods = {name: list(RELEVANCE.get(name, ["all"])) for name in there}
    each = [Experiment(k, name, method) for k in range(repeats) for name in there for method in methods[name]]
    show(args, "paper004_tables", each, partial(computed, quick=args.quick), TABLES)


if __name__ == "__main__":
    main()
