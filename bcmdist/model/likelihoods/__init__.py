"""Likelihoods p(y | f) of independent rows, one latent value each, by name and by task.

Real, two-class, count, positive and censored targets, all behind `interface.Likelihood`.
"""

from collections.abc import Callable

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.likelihoods.classes import SVM, Bernoulli, Probit, TwoClass, logistic_average
from bcmdist.model.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from bcmdist.model.likelihoods.gaussian import Gaussian, StudentT
from bcmdist.model.likelihoods.interface import Likelihood, slopes
from bcmdist.model.likelihoods.lifetimes import Exponential, Weibull
from bcmdist.model.likelihoods.multiclass import OneHot, Softmax
from bcmdist.model.likelihoods.positive import Gamma, InverseGaussian

__all__ = [
    "BOUNDS",
    "CLASS_LIKELIHOODS",
    "LIKELIHOODS",
    "SVM",
    "TASKS",
    "AnyLikelihood",
    "Bernoulli",
    "Binomial",
    "Exponential",
    "Gamma",
    "Gaussian",
    "InverseGaussian",
    "Likelihood",
    "NegativeBinomial",
    "OneHot",
    "Poisson",
    "Probit",
    "Softmax",
    "StudentT",
    "TwoClass",
    "Weibull",
    "logistic_average",
    "make_likelihood",
    "slopes",
    "task_of",
]

ONE = np.ones(1)

LIKELIHOODS: dict[str, Callable[[], Likelihood]] = {
    "gaussian": lambda: Gaussian(noise_variance=0.1 * ONE),
    "student_t": lambda: StudentT(noise_variance=0.1 * ONE, degrees_of_freedom=4.0 * ONE),
    "gamma": lambda: Gamma(shape=ONE),
    "inverse_gaussian": lambda: InverseGaussian(dispersion=ONE),
    "bernoulli": Bernoulli,
    "probit": Probit,
    "svm": SVM,
    "negative_binomial": lambda: NegativeBinomial(shape=ONE),
    "poisson": Poisson,
    "weibull": lambda: Weibull(shape=ONE),
    "exponential": Exponential,
    "binomial": Binomial,
}

# Likelihoods of class numbers 0 to C - 1, from the number of classes C.
CLASS_LIKELIHOODS: dict[str, Callable[[int], Softmax | OneHot]] = {
    "softmax": Softmax,
    "softmax_fisher": lambda classes: Softmax(classes, "fisher"),
    "softmax_coupled": lambda classes: Softmax(classes, "coupled"),
    "onehot": lambda classes: OneHot(classes, noise_variance=0.1 * ONE),
}

# Likelihoods of each task, its default first.
TASKS = {
    "regression": ("gaussian", "student_t", "gamma", "inverse_gaussian"),
    "classification": ("bernoulli", "probit", "svm", *CLASS_LIKELIHOODS),
    "counts": ("negative_binomial", "poisson"),
    "lifetimes": ("weibull", "exponential"),
    "binomial": ("binomial",),
}

# Bounds of natural parameters while learning, for scaled targets. At the far ends a family is its own limit
# (Poisson, Gaussian, a point), and more would only ruin conditioning; below two degrees of freedom there is no
# variance.
BOUNDS = {
    "noise_variance": (1e-6, 1e1),
    "degrees_of_freedom": (2.1, 1e3),
    "shape": (1e-2, 1e4),
    "dispersion": (1e-4, 1e2),
}


AnyLikelihood = Likelihood | Softmax | OneHot


def make_likelihood(name, classes=None) -> AnyLikelihood:
    """Likelihood by its name, at its default parameters; for `CLASS_LIKELIHOODS` of so many classes."""
    if name in CLASS_LIKELIHOODS:
        return CLASS_LIKELIHOODS[name](classes)
    if name not in LIKELIHOODS:
        raise InvalidOption(
            f"likelihood: expected one of {', '.join([*LIKELIHOODS, *CLASS_LIKELIHOODS])}, got {name!r}; give one of "
            "these names"
        )
    return LIKELIHOODS[name]()


def task_of(name) -> str:
    """The task of a likelihood."""
    return next(task for task, names in TASKS.items() if name in names)
