"""Models of other packages that only `python -m benchmarks` runs, by what their documentation recommends.

- exact: GPyTorch's exact GP: Matern 5/2 with a lengthscale per input, Adam 0.1, 50 steps or as many as there is time
  for; its defaults choose between Cholesky factors and conjugate gradients; predictive variances by `fast_pred_var`.
- muygps: MuyGPyS: 30 exact neighbours, an isotropic Matern kernel, lengthscale, smoothness and noise by Bayesian
  optimisation of the leave-one-out likelihood of 500 rows, 5 + 20 trials, analytic scale.
- sklearn_gp: scikit-learn's exact GP on 2,000 random rows: squared exponential with a lengthscale per input and noise.
- gpboost_vif: GPBoost's Vecchia approximation of what 200 inducing points leave (Gyger, Furrer and Sigrist 2026),
  Matern 3/2 with a lengthscale per input, 30 neighbours.
- fvgp: fvGP's exact GP on 2,000 random rows: Matern 3/2 with a lengthscale per input and noise, `local` training.
- ngboost: 500 steps of 0.01, normal distribution; of classes categorical.
- lightgbm_quantiles: quantile regression at the ends of central 50, 80 and 95 % intervals, made conformal by held-out
  rows (Romano et al. 2019), beside the trees of `lightgbm` for the mean.
- lightgbm_counts: trees with Poisson's loss for the rate, rows weighted by exposure.
- gstools: ordinary kriging of 3,000 random rows with the variogram of the best fit among those of GSTools' tutorial.
"""

import contextlib
import math
from functools import partial

import numpy as np
from scipy import stats

from baselines import (
    BLOCK,
    LEAVES,
    PATIENCE,
    RATE,
    THREADS,
    TREES,
    Baseline,
    Predictions,
    Problem,
    begin_torch,
    gpboost,
    held_out,
    some_rows,
    tensor,
    train_on_all,
)
from baselines import lightgbm as lightgbm_means

EXACT_STEPS, EXACT_ADAM = 50, 0.1
NEIGHBOURS, TUNED_ROWS, FIRST_TRIALS, TRIALS = 30, 500, 5, 20
SUBSET, KRIGED = 2000, 3000
PLACES = 32  # places that GSTools predicts at a time: its loops stride through memory by their number
LEVELS = (0.5, 0.8, 0.95)
HELD_OUT = 0.1


def exact(problem: Problem):
    """The exact GP; float32, as GPyTorch does by default."""
    import gpytorch

    begin_torch()
    X, y = tensor(problem.X), tensor(problem.y)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            matern = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
            matern.lengthscale = math.sqrt(X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(matern)

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    model = Model()
    steps = train_on_all(model, likelihood, (X, y), problem, rate=EXACT_ADAM, most=EXACT_STEPS)
    return _predictions(model.eval(), likelihood.eval(), problem, f"{steps} of {EXACT_STEPS} steps")


def _predictions(model, likelihood, problem, note):
    import gpytorch
    import torch

    mean, variance = [], []
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        for Xs in tensor(problem.Xs).split(BLOCK):
            predicted = likelihood(model(Xs))
            mean.append(predicted.mean.double().numpy())
            variance.append(predicted.variance.double().numpy())
    return Predictions(np.concatenate(mean), np.concatenate(variance), note=note)


def muygps(problem: Problem):
    """Muyskens et al. (2021): each point from its nearest neighbours."""
    from MuyGPyS.examples.regress import do_regress
    from MuyGPyS.gp.deformation import Isotropy, l2
    from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter
    from MuyGPyS.gp.kernels import Matern
    from MuyGPyS.gp.noise import HomoscedasticNoise
    from MuyGPyS.optimize import Bayes_optimize

    np.random.seed(0)
    scale = math.sqrt(problem.X.shape[1])
    metric = Isotropy(l2, length_scale=Parameter(scale, (0.05 * scale, 20.0 * scale)))
    kernel = Matern(smoothness=Parameter(1.5, (0.3, 3.0)), deformation=metric)
    noise = HomoscedasticNoise(1e-2, (1e-5, 1.0))
    fit, _, mean, variance = do_regress(
        problem.Xs,
        problem.X,
        problem.y[:, None],
        nn_count=NEIGHBOURS,
        batch_count=min(TUNED_ROWS, len(problem.X)),
        opt_fn=Bayes_optimize,
        k_kwargs={"kernel": kernel, "noise": noise, "scale": AnalyticScale()},
        nn_kwargs={"nn_method": "exact", "algorithm": "ball_tree"},
        opt_kwargs={"random_state": 0, "init_points": FIRST_TRIALS, "n_iter": TRIALS},
    )
    factor = float(np.ravel(fit.scale())[0])
    of_observations = np.ravel(variance) + factor * float(fit.noise())  # it predicts f
    return Predictions(np.ravel(mean), of_observations, note=f"smoothness {float(fit.kernel.smoothness()):.2g}")


def sklearn_gp(problem: Problem):
    """Of some rows only."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    inputs = problem.X.shape[1]
    kernel = ConstantKernel(1.0) * RBF(np.full(inputs, math.sqrt(inputs))) + WhiteKernel(0.1)
    rows = some_rows(problem, SUBSET)
    fit = GaussianProcessRegressor(kernel, random_state=0).fit(problem.X[rows], problem.y[rows])
    blocks = [fit.predict(problem.Xs[k : k + BLOCK], return_std=True) for k in range(0, len(problem.Xs), BLOCK)]
    mean, sd = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return Predictions(mean, sd**2, note=f"{len(rows)} rows")


def fvgp(problem: Problem):
    """Noack et al. (2023), of some rows only; its sparse mode, gp2Scale, is for clusters and compact kernels."""
    import fvgp as package
    from fvgp.kernels import get_anisotropic_distance_matrix, matern_kernel_diff1

    rows, inputs = some_rows(problem, SUBSET), problem.X.shape[1]

    def kernel(x1, x2, parameters):
        scaled = get_anisotropic_distance_matrix(x1, x2, parameters[1 : 1 + inputs])
        return parameters[0] * matern_kernel_diff1(scaled, 1.0)

    def noise(x, parameters):
        return np.full(len(x), parameters[-1])

    first = np.array([1.0, *np.full(inputs, math.sqrt(inputs)), 0.1])
    bounds = np.column_stack([1e-2 * first, 1e2 * first])
    X, y = problem.X[rows], problem.y[rows]
    model = package.GP(X, y, init_hyperparameters=first, kernel_function=kernel, noise_function=noise)
    np.random.seed(0)
    model.train(hyperparameter_bounds=bounds, init_hyperparameters=first)
    blocks = [problem.Xs[k : k + BLOCK] for k in range(0, len(problem.Xs), BLOCK)]
    mean = np.concatenate([model.posterior_mean(block)["m(x)"] for block in blocks])
    named = {"variance_only": True, "add_noise": True}
    variance = np.concatenate([model.posterior_covariance(block, **named)["v(x)"] for block in blocks])
    return Predictions(mean, variance, note=f"{len(rows)} rows")


# --- Boosted trees with distributions ---


def ngboost(problem: Problem):
    """Duan et al. (2020)."""
    from ngboost import NGBClassifier, NGBRegressor
    from ngboost.distns import k_categorical

    if problem.classes is not None:
        fit = NGBClassifier(Dist=k_categorical(problem.classes), verbose=False, random_state=0)
        return Predictions(probability=fit.fit(problem.X, problem.y).predict_proba(problem.Xs))
    fit = NGBRegressor(verbose=False, random_state=0).fit(problem.X, problem.y)
    law = fit.pred_dist(problem.Xs).params
    return Predictions(law["loc"], law["scale"] ** 2)


def lightgbm_quantiles(problem: Problem):
    """Intervals of quantile regression, shifted so that they hold the right share of held-out rows."""
    from lightgbm import LGBMRegressor, early_stopping

    X, X_val, y, y_val = held_out(problem)
    settings = {"n_estimators": TREES, "num_leaves": LEAVES, "learning_rate": RATE, "n_jobs": THREADS}

    def quantile(share):
        fit = LGBMRegressor(objective="quantile", alpha=share, random_state=0, verbosity=-1, **settings)
        return fit.fit(X, y, eval_set=[(X_val, y_val)], callbacks=[early_stopping(PATIENCE, verbose=False)])

    intervals = {}
    for level in LEVELS:
        low, high = quantile(0.5 - level / 2.0), quantile(0.5 + level / 2.0)
        beyond = np.maximum(low.predict(X_val) - y_val, y_val - high.predict(X_val))
        share = min(level * (1.0 + 1.0 / len(y_val)), 1.0)
        shift = np.quantile(beyond, share, method="higher")
        intervals[level] = low.predict(problem.Xs) - shift, high.predict(problem.Xs) + shift
    means = lightgbm_means(problem)
    return Predictions(means.mean, intervals=intervals, note=means.note)


def lightgbm_counts(train, test):
    """Poisson distributions of the counts of test rows (`families.Rows`)."""
    from lightgbm import LGBMRegressor, early_stopping
    from sklearn.model_selection import train_test_split

    rows, kept = train_test_split(np.arange(len(train.y)), test_size=HELD_OUT, random_state=0)
    fit = LGBMRegressor(
        objective="poisson", n_estimators=TREES, learning_rate=RATE, n_jobs=THREADS, random_state=0, verbosity=-1
    )
    rate = train.y / train.exposure
    fit.fit(
        train.X[rows],
        rate[rows],
        sample_weight=train.exposure[rows],
        eval_set=[(train.X[kept], rate[kept])],
        eval_sample_weight=[train.exposure[kept]],
        callbacks=[early_stopping(PATIENCE, verbose=False)],
    )
    return stats.poisson(test.exposure * fit.predict(test.X))


# --- Fields ---


def gstools(problem: Problem):
    """Ordinary kriging with a fitted variogram, of some rows only: it solves a system of all that it is given."""
    import gstools

    rows = some_rows(problem, KRIGED)
    places, values = problem.X[rows].T, problem.y[rows]
    bins, semivariances = gstools.vario_estimate(places, values, sampling_size=SUBSET, sampling_seed=0)
    fits = []
    for kind in (gstools.Exponential, gstools.Gaussian, gstools.Spherical, gstools.Matern, gstools.Stable):
        model = kind(dim=2)
        with contextlib.suppress(RuntimeError):  # its optimiser has not converged
            *_, explained = model.fit_variogram(bins, semivariances, return_r2=True)
            fits.append((explained, model.name, model))
    if not fits:
        raise RuntimeError("no variogram could be fitted")
    _, name, best = max(fits)
    kriging = gstools.krige.Ordinary(best, cond_pos=places, cond_val=values)
    blocks = [kriging(problem.Xs[k : k + PLACES].T) for k in range(0, len(problem.Xs), PLACES)]
    mean, variance = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return Predictions(mean, np.maximum(variance, 0.0) + best.nugget, note=f"{name}, {len(rows)} rows")


MODELS = {
    "exact": Baseline(exact, ("torch", "gpytorch"), classes=False),
    "muygps": Baseline(muygps, ("MuyGPyS",), classes=False),
    "gpboost_vif": Baseline(partial(gpboost, approximation="full_scale_vecchia"), ("gpboost",), classes=False),
    "fvgp": Baseline(fvgp, ("fvgp",), classes=False),
    "sklearn_gp": Baseline(sklearn_gp, ("sklearn.gaussian_process",), classes=False),
    "ngboost": Baseline(ngboost, ("ngboost",)),
    "lightgbm_quantiles": Baseline(lightgbm_quantiles, ("lightgbm",), classes=False),
    "gstools": Baseline(gstools, ("gstools",), classes=False),
}
