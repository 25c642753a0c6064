"""The scale of a kernel that was learned with another likelihood than the one it is for."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from bcmdist.learning.search import GAIN_NATS, PRIOR_SD
from bcmdist.model.kernels import Kernel

# Factor on all lengthscales with which rescaling tries first (on variances: its square), and its evaluations.
RESCALE_STEP = np.log(2.0)
RESCALE_EVALUATIONS = 20

# Largest variance of softmax latents: odds of exp(14) at two standard deviations. Where classes do not overlap the
# evidence grows beyond, and one pass suffers: on validation rows of letter, accuracy .87 at a variance of 30, .89 at
# 100, .64 at 1000.
LARGEST_SOFTMAX_VARIANCE = 50.0


def rescale(value: Callable[[Kernel], float], kernel: Kernel) -> Kernel:
    """The kernel with all lengthscales times one factor and all variances times another that maximise `value`.

    For likelihoods whose evidence has no gradient here: the kernel was learned with another likelihood, whose
    latents have another scale. Nelder-Mead from the kernel as it is, with the weak prior of the search.
    """
    bounds = dict(kernel.bounds)
    for name in kernel.variances:
        low, high = bounds[name]
        bounds[name] = low, min(high, LARGEST_SOFTMAX_VARIANCE)

    def scaled(logs):
        factors = dict.fromkeys(kernel.lengthscales, np.exp(logs[0])) | dict.fromkeys(kernel.variances, np.exp(logs[1]))
        values = {n: (v * factors.get(n, 1.0)).clip(*bounds[n]) for n, v in kernel.parameters.items()}
        return kernel.with_parameters(values)

    def loss(logs):
        penalty = 0.5 * float(logs @ logs) / PRIOR_SD**2
        return penalty - value(scaled(logs))

    simplex = np.array([[0.0, 0.0], [RESCALE_STEP, 0.0], [0.0, 2.0 * RESCALE_STEP]])
    options = {"initial_simplex": simplex, "maxfev": RESCALE_EVALUATIONS, "fatol": GAIN_NATS, "xatol": 0.05}
    return scaled(minimize(loss, np.zeros(2), method="Nelder-Mead", options=options).x)
