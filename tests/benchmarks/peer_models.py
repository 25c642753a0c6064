"""Gaussian processes of other packages that only `peers.py` runs, by what their documentation recommends.

- exact: GPyTorch's exact GP: Matern 5/2 with a lengthscale per input, Adam 0.1, 50 steps or as many as there is time
  for; its defaults choose between Cholesky factors and conjugate gradients; predictive variances by `fast_pred_var`.
- muygps: MuyGPyS: 30 exact neighbours, an isotropic Matern kernel, lengthscale, smoothness and noise by Bayesian
  optimisation of the leave-one-out likelihood of 500 rows, 5 + 20 trials, analytic scale.
- sklearn_gp: scikit-learn's exact GP on 2,000 random rows: squared exponential with a lengthscale per input and noise.
"""

import math

import numpy as np

from baselines import BLOCK, Baseline, Problem, Said, begin_torch, some_rows, tensor, train_on_all

EXACT_STEPS, EXACT_ADAM = 50, 0.1
NEIGHBOURS, TUNED_ROWS, FIRST_TRIALS, TRIALS = 30, 500, 5, 20
SUBSET = 2000


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
    return _said(model.eval(), likelihood.eval(), problem, f"{steps} of {EXACT_STEPS} steps")


def _said(model, likelihood, problem, note):
    import gpytorch
    import torch

    mean, variance = [], []
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        for Xs in tensor(problem.Xs).split(BLOCK):
            said = likelihood(model(Xs))
            mean.append(said.mean.double().numpy())
            variance.append(said.variance.double().numpy())
    return Said(np.concatenate(mean), np.concatenate(variance), note=note)


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
    return Said(np.ravel(mean), of_observations, note=f"smoothness {float(fit.kernel.smoothness()):.2g}")


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
    return Said(mean, sd**2, note=f"{len(rows)} rows")


MODELS = {
    "exact": Baseline(exact, ("torch", "gpytorch"), classes=False),
    "muygps": Baseline(muygps, ("MuyGPyS",), classes=False),
    "sklearn_gp": Baseline(sklearn_gp, ("sklearn.gaussian_process",), classes=False),
}
