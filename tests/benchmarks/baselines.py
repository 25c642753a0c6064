"""What a user would pick instead of a committee: each on one data set, in a process of its own.

    python tests/benchmarks/baselines.py METHOD TRAIN.zarr TEST.zarr --task T [--seconds S] [--model DIR]

Prints one JSON object: the scores of the test rows in original units, by the definitions of `bcmdist score`, and the
seconds of learning and predicting (imports and reading left out). A library that is not installed is reported.
Inputs are standardised by the training rows, and so are the targets of a regression. Settings are those of tutorials:

- hgb, lightgbm: learning rate 0.1, up to 1000 trees of 31 leaves, stop after 20 without gain on 10 % held out; the
  predictive variance is the mean squared error on these.
- svgp, sgpr: squared exponential kernel with a lengthscale per input, first sqrt(D); inducing points are random rows
  at first and learned. SVGP: 100 epochs in batches of 1024, or 1000 steps; natural gradients 0.1 beside Adam 0.01
  (classes: Adam only). SGPR: Adam 0.1, 100 steps. Both stop early where most of the seconds are over.
- gpboost: Vecchia approximation (Sigrist 2022), Matern 3/2 with a lengthscale per input, 20 neighbours.
- dense: the exact GP with kernel, noise, mean and scaling of a fitted model directory.
"""

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import zarr
from scipy import linalg

from bcmdist import GBCM
from bcmdist.data.observations import unweighted
from bcmdist.model.likelihoods import Gaussian
from bcmdist.prediction.observation import observe, predictive
from bcmdist.prediction.scoring.pit import pit_ranges
from bcmdist.prediction.scoring.scores import class_scores, real_scores

THREADS = os.cpu_count() or 1
# Of the seconds, from the start of the process: the rest is for predictions.
TRAINING_SHARE = 0.6
HELD_OUT = 0.1
TREES, LEAVES, RATE, PATIENCE = 1000, 31, 0.1, 20
INDUCING = 500
EPOCHS, LEAST_STEPS, BATCH, ADAM, NATURAL = 100, 1000, 1024, 0.01, 0.1
SGPR_STEPS, SGPR_ADAM = 100, 0.1
LIKELIHOOD_SAMPLES = 64
# Log loss is of probabilities of at least this: boosted trees say 0.
LEAST_PROBABILITY = 1e-15
# Rows at a time of predictions and of covariances.
BLOCK = 2000


@dataclass(frozen=True)
class Problem:
    """Standardised training rows and test inputs."""

    X: np.ndarray
    y: np.ndarray
    """(n,): standardised targets, or class numbers from 0"""
    Xs: np.ndarray
    deadline: float
    """of training, on the clock of `time.perf_counter`"""
    classes: int | None
    """None: regression"""


@dataclass(frozen=True)
class Predictions:
    """Predictions: mean and variance of observations (n,), or probabilities (n, C)."""

    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    """None: no density, only intervals"""
    probability: np.ndarray | None = None
    intervals: Mapping[float, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """lower and upper ends by level, in place of those of a normal distribution"""
    note: str = ""


# --- No inputs, and straight lines ---


def intercept(problem):
    rows = len(problem.Xs)
    if problem.classes is None:
        return Predictions(np.zeros(rows), np.ones(rows))
    share = np.bincount(problem.y, minlength=problem.classes) / len(problem.y)
    return Predictions(probability=np.tile(share, (rows, 1)))


def linear(problem):
    from sklearn.linear_model import BayesianRidge, LogisticRegression

    if problem.classes is None:
        mean, sd = BayesianRidge().fit(problem.X, problem.y).predict(problem.Xs, return_std=True)
        return Predictions(mean, sd**2)
    fit = LogisticRegression(max_iter=2000).fit(problem.X, problem.y)
    return Predictions(probability=fit.predict_proba(problem.Xs))


# --- Boosted trees ---


def hgb(problem):
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor if problem.classes is None else HistGradientBoostingClassifier
    settings = {"max_iter": TREES, "max_leaf_nodes": LEAVES, "learning_rate": RATE, "n_iter_no_change": PATIENCE}
    X, X_val, y, y_val = held_out(problem)
    fit = trees(early_stopping=True, random_state=0, **settings).fit(X, y, X_val=X_val, y_val=y_val)
    return predicted_by_trees(problem, fit, X_val, y_val, f"{fit.n_iter_} trees")


def lightgbm(problem):
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    trees = LGBMRegressor if problem.classes is None else LGBMClassifier
    settings = {"n_estimators": TREES, "num_leaves": LEAVES, "learning_rate": RATE}
    X, X_val, y, y_val = held_out(problem)
    fit = trees(n_jobs=THREADS, random_state=0, verbosity=-1, **settings)
    fit.fit(X, y, eval_set=[(X_val, y_val)], callbacks=[early_stopping(PATIENCE, verbose=False)])
    return predicted_by_trees(problem, fit, X_val, y_val, f"{fit.best_iteration_} trees")


def held_out(problem):
    """Inputs, held-out inputs, targets, held-out targets."""
    from sklearn.model_selection import train_test_split

    stratify = None if problem.classes is None else problem.y
    return train_test_split(problem.X, problem.y, test_size=HELD_OUT, random_state=0, stratify=stratify)


def predicted_by_trees(problem, fit, X_val, y_val, note):
    if problem.classes is not None:
        return Predictions(probability=fit.predict_proba(problem.Xs), note=note)
    variance = ((fit.predict(X_val) - y_val) ** 2).mean()
    return Predictions(fit.predict(problem.Xs), np.full(len(problem.Xs), variance), note=note)


# --- Gaussian processes with inducing points ---


def svgp(problem, *, inducing):
    """Hensman et al. (2013); of several classes with a latent function each."""
    import gpytorch
    import torch

    begin_torch()
    X, y = tensor(problem.X), tensor(problem.y)
    outputs = problem.classes if problem.classes and problem.classes > 2 else 1
    if problem.classes is None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
    elif outputs == 1:
        likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    else:
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=outputs, mixing_weights=False)
        y = y.long()
    model = variational_gp(X[some_rows(problem, inducing)], outputs, natural=problem.classes is None)
    optimisers = [torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=ADAM)]
    if problem.classes is None:
        optimisers.append(gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=NATURAL))
    else:
        optimisers[0].add_param_group({"params": list(model.variational_parameters())})
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    epochs = train_by_batches(model, optimisers, lambda rows: -bound(model(X[rows]), y[rows]), len(y), problem.deadline)
    return predicted_by_gp(problem, model, likelihood, f"{epochs:.3g} epochs")


def variational_gp(points, outputs, *, natural):
    """An approximate GP of GPyTorch at given inducing points (m, D)."""
    import gpytorch
    from gpytorch import variational

    distribution = (
        variational.NaturalVariationalDistribution if natural else variational.CholeskyVariationalDistribution
    )
    points = points.repeat(outputs, 1, 1) if outputs > 1 else points

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = distribution(points.shape[-2], batch_shape=points.shape[:-2])
            strategy = variational.VariationalStrategy(self, points, q)
            if outputs > 1:
                strategy = variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=outputs)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=points.shape[:-2])
            self.covar_module = squared_exponential(points)

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    return Model()


def train_by_batches(model, optimisers, loss, rows, deadline):
    """Epochs done: EPOCHS or what it takes for LEAST_STEPS steps, fewer where time is over."""
    import torch

    model.train()
    per_epoch, done = math.ceil(rows / BATCH), 0
    while done < max(EPOCHS * per_epoch, LEAST_STEPS) and time.perf_counter() < deadline:
        if done % per_epoch == 0:
            batches = iter(torch.randperm(rows).split(BATCH))
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss(next(batches)).backward()
        for optimiser in optimisers:
            optimiser.step()
        done += 1
    return done / per_epoch


def sgpr(problem, *, inducing):
    """Titsias (2009), regression only."""
    import gpytorch

    begin_torch()
    X, y = tensor(problem.X), tensor(problem.y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y, likelihood)
            points = X[some_rows(problem, inducing)].clone()
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(
                squared_exponential(points), inducing_points=points, likelihood=likelihood
            )

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    model = Model()
    steps = train_on_all(model, likelihood, (X, y), problem, rate=SGPR_ADAM, most=SGPR_STEPS)
    return predicted_by_gp(problem, model, likelihood, f"{steps} steps")


def train_on_all(model, likelihood, rows, problem, *, rate, most):
    """Steps of Adam done on the evidence of all rows: so many at most, fewer where time is over."""
    import gpytorch
    import torch

    X, y = rows
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    steps = 0
    while steps < most and time.perf_counter() < problem.deadline:
        optimiser.zero_grad()
        (-evidence(model(X), y)).backward()
        optimiser.step()
        steps += 1
    return steps


def begin_torch():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(THREADS)


def tensor(array):
    import torch

    return torch.tensor(array, dtype=torch.float32)


def some_rows(problem, number):
    return np.random.default_rng(0).permutation(len(problem.X))[:number]


def squared_exponential(points):
    """With lengthscales sqrt(D) and variance 1, for each batch of points (..., m, D)."""
    from gpytorch.kernels import RBFKernel, ScaleKernel

    batch, inputs = points.shape[:-2], points.shape[-1]
    kernel = ScaleKernel(RBFKernel(ard_num_dims=inputs, batch_shape=batch), batch_shape=batch)
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.0, math.sqrt(inputs)
    return kernel


def predicted_by_gp(problem, model, likelihood, note):
    import gpytorch
    import torch

    model.eval()
    likelihood.eval()
    blocks = []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(LIKELIHOOD_SAMPLES):
        for Xs in tensor(problem.Xs).split(BLOCK):
            predicted = likelihood(model(Xs))
            if problem.classes is None:
                blocks.append(torch.stack([predicted.mean, predicted.variance], dim=-1))
            elif problem.classes == 2:
                blocks.append(torch.stack([1 - predicted.probs, predicted.probs], dim=-1))
            else:
                blocks.append(predicted.probs.mean(dim=0))
    table = torch.cat(blocks).double().numpy()
    if problem.classes is None:
        return Predictions(table[:, 0], table[:, 1], note=note)
    return Predictions(probability=table, note=note)


# --- Gaussian processes otherwise ---


def gpboost(problem, approximation="vecchia"):
    """GPBoost with its default number of neighbours and inducing points, regression only."""
    import gpboost

    model = gpboost.GPModel(
        gp_coords=problem.X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx=approximation,
        likelihood="gaussian",
        num_parallel_threads=THREADS,
        seed=0,
    )
    model.fit(y=problem.y)
    predicted = model.predict(gp_coords_pred=problem.Xs, predict_var=True, predict_response=True)
    return Predictions(predicted["mu"], predicted["var"])


def dense(model, train, test):
    """The exact GP with all that a fitted model settled: figures in original units."""
    model = GBCM.load(model).model
    scaling, kernel, mean = model.scaling, model.query.kernel, model.query.mean
    y = (train["y"] - scaling.y_mean) / scaling.y_scale
    noise = float(model.likelihood.noise_variance[0])
    X, Xs = scaling.inputs(train["X"]), scaling.inputs(test["X"])
    f, variance = dense_gp(kernel, mean.design, X, y, noise, Xs)
    predicted = Predictions(f * scaling.y_scale + scaling.y_mean, (variance + noise) * scaling.y_scale**2)
    return regression_figures(predicted, train["y"], test["y"])


def dense_gp(kernel, H, X, y, noise, Xs, *, block=BLOCK):
    """Mean and variance of f at Xs by GP regression on all rows at once, with mean weights N(0, I).

    K is filled and factored in place: 8 n^2 bytes and n^3 / 3 flops.
    """
    n, Hx = len(X), H(X)
    K = np.zeros((n, n), order="F")
    for start in range(0, n, block):
        own = slice(start, start + block)
        K[start:, own] = kernel.cross(X[start:], X[own]) + Hx[start:] @ Hx[own].T
    K[np.diag_indices(n)] += noise
    L = linalg.cholesky(K, lower=True, overwrite_a=True, check_finite=False)
    z = linalg.solve_triangular(L, y, lower=True)
    mean, variance = np.empty(len(Xs)), np.empty(len(Xs))
    for start in range(0, len(Xs), block):
        own = slice(start, start + block)
        Hs = H(Xs[own])
        V = linalg.solve_triangular(L, kernel.cross(X, Xs[own]) + Hx @ Hs.T, lower=True, check_finite=False)
        mean[own] = V.T @ z
        variance[own] = kernel.diagonal(Xs[own]) + (Hs**2).sum(axis=1) - (V**2).sum(axis=0)
    return mean, variance


# --- Figures ---


@dataclass(frozen=True)
class Baseline:
    """A method with the modules it needs."""

    work: Callable[[Problem], Predictions]
    needs: tuple[str, ...] = ()
    classes: bool = True
    """whether it does classification too"""


BASELINES = {
    "intercept": Baseline(intercept),
    "linear": Baseline(linear, ("sklearn.linear_model",)),
    "hgb": Baseline(hgb, ("sklearn.ensemble",)),
    "lightgbm": Baseline(lightgbm, ("lightgbm",)),
    "svgp": Baseline(partial(svgp, inducing=INDUCING), ("torch", "gpytorch")),
    "sgpr": Baseline(partial(sgpr, inducing=INDUCING), ("torch", "gpytorch"), classes=False),
    "sgpr1000": Baseline(partial(sgpr, inducing=2 * INDUCING), ("torch", "gpytorch"), classes=False),
    "gpboost": Baseline(gpboost, ("gpboost",), classes=False),
}
DENSE = "dense"


def figures_of(method, train, test, task, deadline):
    """Scores, seconds and a note of one baseline, in original units."""
    return figures_by(BASELINES[method], train, test, task, deadline)


def figures_by(baseline, train, test, task, deadline):
    """As `figures_of`, of a `Baseline` that has no name here."""
    for module in baseline.needs:
        importlib.import_module(module)
    labels = np.unique(train["y"]) if task == "classification" else None
    problem = standardised(train, test["X"], labels, deadline)
    start = time.perf_counter()
    predicted = baseline.work(problem)
    spent = time.perf_counter() - start
    if labels is not None:
        figures = class_figures(predicted.probability, np.searchsorted(labels, test["y"]))
    else:
        figures = regression_figures(in_units_of(predicted, train["y"]), train["y"], test["y"])
    return figures | {"seconds": spent, "note": predicted.note}


def in_units_of(predicted, y):
    """Predictions of standardised targets in the units of the targets y."""
    shift, scale = y.mean(), y.std()
    variance = None if predicted.variance is None else predicted.variance * scale**2
    intervals = {level: tuple(end * scale + shift for end in ends) for level, ends in predicted.intervals.items()}
    return Predictions(predicted.mean * scale + shift, variance, intervals=intervals, note=predicted.note)


def standardised(train, Xs, labels, deadline):
    mean, sd = train["X"].mean(axis=0), train["X"].std(axis=0)
    kept = sd > 0
    X, Xs = ((rows - mean)[:, kept] / sd[kept] for rows in (train["X"], Xs))
    y = train["y"]
    y = (y - y.mean()) / y.std() if labels is None else np.searchsorted(labels, y)
    return Problem(X, y, Xs, deadline, None if labels is None else len(labels))


def regression_figures(predicted, y_train, y_test):
    """Scores by the definitions of `bcmdist score`; without a variance those of the mean and of the intervals."""
    if predicted.variance is None:
        squared = ((predicted.mean - y_test) ** 2).mean()
        figures = {"rmse": float(np.sqrt(squared)), "nmse": float(squared / ((y_test - y_train.mean()) ** 2).mean())}
        inside = {level: (low <= y_test) & (y_test <= high) for level, (low, high) in predicted.intervals.items()}
        return figures | {f"coverage{round(100 * level)}": float(held.mean()) for level, held in inside.items()}
    obs, nothing = unweighted(y_test), Gaussian(0.0)
    mean, variance = np.asarray(predicted.mean, dtype=float), np.asarray(predicted.variance, dtype=float)
    normal = predictive(nothing, mean, variance, obs)
    named = observe(nothing, mean, variance, obs)
    log_density, loss = normal.log_density(obs), normal.crps(y_test)
    where = pit_ranges(nothing, normal, obs)
    return real_scores(y_test, named, log_density, where, train_mean=y_train.mean(), crps=loss).summary()


def class_figures(probability, number):
    p = np.maximum(probability, LEAST_PROBABILITY)
    return class_scores(number, {"probability": p / p.sum(axis=1, keepdims=True)}).summary()


def read(path):
    """Inputs and targets of a data set."""
    group = zarr.open_group(path, mode="r")
    return {name: np.asarray(group[name][...], dtype=float) for name in ("X", "y")}


def main():
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=[*BASELINES, DENSE])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--task", choices=["regression", "classification"], required=True)
    parser.add_argument("--seconds", type=float, default=300.0, help="for learning and predicting [default: 300]")
    parser.add_argument("--model", help=f"fitted model directory, for {DENSE}")
    options = parser.parse_args()
    train, test = read(options.train), read(options.test)
    try:
        if options.method == DENSE:
            start = time.perf_counter()
            figures = dense(options.model, train, test) | {"note": ""}
            figures["seconds"] = time.perf_counter() - start
        else:
            figures = figures_of(options.method, train, test, options.task, started + TRAINING_SHARE * options.seconds)
    except ImportError as error:
        figures = {"none": f"not installed: {error.name}"}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
