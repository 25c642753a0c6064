"""Classes, counts and lifetimes: a committee against no inputs at all and against a GLM of the same family.

    BCMDIST_DATA=... python tests/benchmarks/families.py [--only NAME] [--quick] [--query Q ...] [--json FILE]

One row of the table for each real data set and likelihood. The committee is made and scored by the command line;
the intercept and the GLM are fitted by the libraries of the extra `benchmark`. The score is the mean of
-log p(observation) over held-out rows, constants included, in original units (of a censored row: -log P(T > t)).
"""

import argparse
import json
import os
import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas
import zarr
from scipy import linalg, optimize, stats
from scipy.special import roots_hermitenorm

from bcmdist import GBCM
from bcmdist.data.writing import write_dataset
from bcmdist.prediction.scoring.scores import class_scores, concordance_pairs
from commands import Unfinished, bcmdist

HOLDOUT = ("--holdout", 0.3333, "--seed", 0)
MNIST_INPUTS = 40
QUICK_ROWS = 10_000
# A time of 0 counts as this share of the mean: it has no density under most Weibull distributions.
LEAST_TIME = 1e-4
# Of the QR diagonal: a column that others determine (all levels of a factor beside an intercept) is left out.
DEPENDENT = 1e-8
LOGISTIC_STEPS = 2000
GLM_STEPS = 200
# Of a negative binomial: from far over-dispersed to as good as Poisson.
LOG_SHAPES = (-5.0, 8.0)
HERMITE_NODES = 32


@dataclass(frozen=True)
class Case:
    """A data set with the likelihoods to try."""

    name: str
    task: str
    likelihoods: tuple[str, ...]
    rows: int
    y: str = "y"
    own_split: bool = False


CASES = (
    Case("veteran", "lifetimes", ("weibull",), 137, y="time"),
    Case("leuksurv", "lifetimes", ("weibull",), 1043),
    Case("doctor_visits", "counts", ("poisson", "negative_binomial"), 5190),
    Case("flchain", "lifetimes", ("weibull",), 7874, y="time"),
    Case("bike_hourly_counts", "counts", ("poisson", "negative_binomial"), 17_379),
    Case("claims_car", "counts", ("poisson", "negative_binomial"), 67_856),
    Case("ijcnn1", "classification", ("bernoulli",), 141_691, own_split=True),
    Case("letter", "classification", ("softmax", "onehot"), 20_000, own_split=True),
    Case("mnist", "classification", ("softmax", "onehot"), 70_000, own_split=True),
)


# --- Data ---


def import_parts(case, folder):
    """Both parts of a data set as Zarr groups in a folder."""
    file = Path(os.environ["BCMDIST_DATA"], f"{case.name}.npz")
    if case.name == "mnist":
        return write_digits(file, folder)
    for part in ("train", "test"):
        split = () if case.own_split else HOLDOUT
        bcmdist("import", file, folder / f"{part}.zarr", "--y", case.y, "--part", part, *split)
    return None


def write_digits(file, folder):
    """Images as their principal components over the training part."""
    from sklearn.decomposition import PCA

    with np.load(file) as arrays:
        images = {part: arrays[f"X_{part}"] / np.float32(255) for part in ("train", "test")}
        targets = {part: arrays[f"y_{part}"] for part in images}
    components = PCA(MNIST_INPUTS, random_state=0).fit(images["train"])
    for part, X in images.items():
        write_dataset(folder / f"{part}.zarr", {"X": components.transform(X), "y": targets[part]})


@dataclass(frozen=True)
class Rows:
    """Standardised inputs with targets and what goes with them."""

    X: np.ndarray
    y: np.ndarray
    exposure: np.ndarray
    event: np.ndarray


def read_rows(folder):
    """Training and test rows for the GLM: independent columns, standardised by the training rows."""
    train, test = (read_part(folder / f"{part}.zarr") for part in ("train", "test"))
    mean, sd = train.X.mean(axis=0), train.X.std(axis=0)
    varying = np.flatnonzero(sd > 0)
    kept = varying[independent_columns((train.X - mean)[:, varying] / sd[varying])]
    return [replace(rows, X=(rows.X - mean)[:, kept] / sd[kept]) for rows in (train, test)]


def read_part(path):
    """All rows of a group, exposure and event 1 where there are none."""
    group = zarr.open_group(path, mode="r")
    columns = {n: np.asarray(group[n][...], dtype=float) for n in ("X", "y", "exposure", "event") if n in group}
    ones = np.ones(len(columns["y"]))
    return Rows(**{"exposure": ones, "event": ones} | columns)


def independent_columns(X):
    """Columns of centred X (n, D) without those that earlier ones determine."""
    _, R, order = linalg.qr(X, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    return np.sort(order[size > DEPENDENT * size[0]])


def with_intercept(X):
    return np.column_stack([np.ones(len(X)), X])


# --- Counts and lifetimes: what a fitted baseline says is a scipy distribution for each test row ---


def poisson_glm(train, test):
    import statsmodels.api as sm

    fit = count_glm(train, sm.families.Poisson())
    return stats.poisson(test.exposure * np.exp(with_intercept(test.X) @ fit.params))


def negative_binomial_glm(train, test):
    """With the over-dispersion 1 / shape that maximises the profile likelihood.

    statsmodels' own joint search for it diverges where counts are few and hardly over-dispersed.
    """
    import statsmodels.api as sm

    def fit(log_shape):
        return count_glm(train, sm.families.NegativeBinomial(alpha=np.exp(-log_shape)))

    best = optimize.minimize_scalar(lambda log_shape: -fit(log_shape).llf, bounds=LOG_SHAPES, method="bounded")
    shape = np.exp(best.x)
    mean = test.exposure * np.exp(with_intercept(test.X) @ fit(best.x).params)
    return stats.nbinom(shape, shape / (shape + mean))


def count_glm(train, family):
    """A GLM of counts by iterated least squares."""
    import statsmodels.api as sm

    fit = sm.GLM(train.y, with_intercept(train.X), family=family, exposure=train.exposure).fit(maxiter=GLM_STEPS)
    if not fit.converged:
        raise RuntimeError(f"{type(family).__name__} GLM: expected to converge in {GLM_STEPS} steps, it did not")
    return fit


def weibull_glm(train, test):
    """The accelerated failure time model: log T = x' w + an error of the same shape everywhere."""
    from lifelines import WeibullAFTFitter, WeibullFitter

    time = np.where(train.y > 0, train.y, LEAST_TIME * train.y.mean())
    if train.X.shape[1] == 0:
        fit = WeibullFitter().fit(time, train.event)
        return stats.weibull_min(np.full(len(test.y), fit.rho_), scale=fit.lambda_)
    frame = pandas.DataFrame(train.X, columns=[f"x{k}" for k in range(train.X.shape[1])])
    frame = frame.assign(time=time / time.mean(), event=train.event)
    fit = WeibullAFTFitter().fit(frame, "time", "event")
    weights = fit.params_["lambda_"]
    eta = test.X @ weights[[f"x{k}" for k in range(test.X.shape[1])]].to_numpy() + weights["Intercept"]
    return stats.weibull_min(np.exp(fit.params_["rho_"]["Intercept"]), scale=time.mean() * np.exp(eta))


EVENT_GLMS = {"poisson": poisson_glm, "negative_binomial": negative_binomial_glm, "weibull": weibull_glm}


def event_figures(law, train, test, discrete):
    """Scores of distributions, one for each test row."""
    y = test.y if discrete else np.where(test.y > 0, test.y, LEAST_TIME * train.y.mean())
    log_density = law.logpmf(y) if discrete else np.where(test.event == 1, law.logpdf(y), law.logsf(y))
    pairs, concordant = concordance_pairs(test.y / test.exposure, test.event, law.mean())
    return {
        "mnlp": -log_density.mean(),
        **{f"coverage{level}": covered(law, y, test.event, discrete, level / 100).mean() for level in (50, 80, 95)},
        "concordance": concordant / pairs,
    }


def covered(law, y, event, discrete, level):
    """1 where y lies in the central interval; of a censored row the probability of that, given survival so far."""
    at, tail = law.cdf(y), (1.0 - level) / 2.0
    inside = ((at >= tail) & ((law.cdf(y - 1) if discrete else at) < 1.0 - tail)) * 1.0
    rest = np.maximum(1.0 - tail - np.maximum(at, tail), 0.0) / np.maximum(1.0 - at, tail)
    return np.where(event == 1, inside, rest)


def expected_coverage(model, test, X):
    """What a committee itself expects of its 95 % intervals of counts, which cannot be exactly 95 %."""
    gbcm = GBCM.load(model)
    predicted = gbcm.predict(X, exposure=test.exposure)
    nodes, weights = roots_hermitenorm(HERMITE_NODES)
    rate = np.exp(predicted["mean"][:, None] + np.sqrt(predicted["variance"])[:, None] * nodes) * test.exposure[:, None]
    shape = gbcm.info()["hyperparameters"].get("likelihood.shape")
    given = stats.poisson(rate) if shape is None else stats.nbinom(shape[0], shape[0] / (shape[0] + rate))
    inside = given.cdf(predicted["upper95"][:, None]) - given.cdf(predicted["lower95"][:, None] - 1)
    return float((inside @ weights / weights.sum()).mean())


# --- Classes ---


def class_baselines(train, test):
    from sklearn.linear_model import LogisticRegression

    labels, number = np.unique(train.y, return_inverse=True)
    share = np.bincount(number) / len(number)
    glm = LogisticRegression(max_iter=LOGISTIC_STEPS).fit(train.X, train.y)
    truth = np.searchsorted(labels, test.y)
    predicted = {"intercept": np.tile(share, (len(truth), 1)), "glm": glm.predict_proba(test.X)}
    return {name: class_scores(truth, {"probability": p}).summary() for name, p in predicted.items()}


# --- Rows of the table ---


def baselines(task, likelihood, train, test):
    """Figures of the intercept and of the GLM."""
    if task == "classification":
        return class_baselines(train, test)
    discrete, glm = task == "counts", EVENT_GLMS[likelihood]
    empty = [replace(rows, X=rows.X[:, :0]) for rows in (train, test)]
    return {
        "intercept": event_figures(glm(*empty), train, test, discrete),
        "glm": event_figures(glm(train, test), train, test, discrete),
    }


def committee(case, likelihood, folder, *, query, seconds, options=()):
    """Figures of a fitted committee on the test part."""
    model = folder / f"{likelihood}-{query}"
    asked = ("--task", case.task, "--likelihood", likelihood, "--query", query, "--workers", 2)
    fit = bcmdist("fit", folder / "train.zarr", "--model", model, *asked, *options, seconds=seconds)
    score = bcmdist("score", model, folder / "test.zarr", "--workers", 2)
    return {f"fit_{name}": value for name, value in fit.items()} | score


def rows_of(case, queries, seconds):
    """Figures by row, as they are ready."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        import_parts(case, folder)
        train, test = read_rows(folder)
        found = {}
        for likelihood in case.likelihoods:
            if case.task != "classification" or not found:
                found = baselines(case.task, likelihood, train, test)
            for query in queries:
                row = {"data": case.name, "likelihood": likelihood, "query": query}
                row |= {"train_rows": len(train.y), "test_rows": len(test.y), **found}
                try:
                    row["ours"] = committee(case, likelihood, folder, query=query, seconds=seconds)
                except Unfinished as error:
                    row["unfinished"] = str(error)
                    yield row
                    continue
                if case.task == "counts":
                    X = zarr.open_group(folder / "test.zarr", mode="r")["X"][...]
                    row["expected95"] = expected_coverage(folder / f"{likelihood}-{query}", test, X)
                yield row


HEAD = (
    "| data | likelihood | Q | train | test | intercept | GLM | ours | accuracy/coverage95 GLM | ours | "
    "concordance GLM | ours | ECE GLM | ours | coverage95 expected | fit s |"
)


def line(row):
    """A row of the table, in markdown."""
    glm, ours = row["glm"], row.get("ours", {})
    score = "log_loss" if "log_loss" in glm else "mnlp"
    hit = "accuracy" if "accuracy" in glm else "coverage95"
    cells = [row[n] for n in ("data", "likelihood", "query", "train_rows", "test_rows")]
    cells += [row["intercept"][score], glm[score], ours.get(score), glm[hit], ours.get(hit)]
    cells += [glm.get("concordance"), ours.get("concordance"), glm.get("ece"), ours.get("ece")]
    cells += [row.get("expected95"), round(ours["fit_seconds"], 1) if ours else row["unfinished"]]
    return "| " + " | ".join(readable(cell) for cell in cells) + " |"


def readable(cell):
    if cell is None:
        return ""
    return f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], help="may be repeated")
    parser.add_argument("--quick", action="store_true", help=f"data sets of at most {QUICK_ROWS} rows")
    parser.add_argument("--query", type=int, nargs="+", default=[500], help="query points [default: 500]")
    parser.add_argument("--seconds", type=float, default=900.0, help="stop a fit after so long [default: 900]")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    options = parser.parse_args()
    if "BCMDIST_DATA" not in os.environ:
        parser.error("expected the folder of the data sets in BCMDIST_DATA, it is not set")
    wanted = [c for c in CASES if c.name in (options.only or [c.name]) and (not options.quick or c.rows <= QUICK_ROWS)]
    print(HEAD, "|---" * (HEAD.count("|") - 1) + "|", sep="\n", flush=True)
    rows = []
    for case in wanted:
        for row in rows_of(case, options.query, options.seconds):
            print(line(row), flush=True)
            rows.append(row)
            if options.json:
                Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="lifelines|statsmodels")
    main()
