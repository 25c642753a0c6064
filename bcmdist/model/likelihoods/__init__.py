"""Likelihoods p(y | f) of independent rows by name and by task, ours and what other packages register.

Real, two-class, count, positive and censored targets of one latent process, and classes of one each, all behind
`interface.Likelihood`. To add one, write a class (`interface.OneProcess`) and register it; another package also names
its module under the entry points of `data.registry`:

    @register_likelihood
    @dataclass(frozen=True)
    class Beta(OneProcess):
        precision: np.ndarray = parameter(8.0, (1e-1, 1e5), widens=-1.0)
        name, task, units = "beta", "regression", SHARE
        ...

Its task, units (`model.units`), parameters with their bounds, columns and scores follow from the class.
"""

from bcmdist.data.registry import Registry, load_plugins
from bcmdist.model.likelihoods.classes import SVM, Bernoulli, Probit, TwoClass, logistic_average
from bcmdist.model.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from bcmdist.model.likelihoods.gaussian import Gaussian, StudentT
from bcmdist.model.likelihoods.interface import Likelihood, OneProcess, parameter, slopes
from bcmdist.model.likelihoods.lifetimes import Exponential, Weibull
from bcmdist.model.likelihoods.multiclass import OneHot, Softmax, SoftmaxCoupled, SoftmaxFisher
from bcmdist.model.likelihoods.positive import Gamma, InverseGaussian

__all__ = [
    "LIKELIHOODS",
    "SVM",
    "Bernoulli",
    "Binomial",
    "Exponential",
    "Gamma",
    "Gaussian",
    "InverseGaussian",
    "Likelihood",
    "NegativeBinomial",
    "OneHot",
    "OneProcess",
    "Poisson",
    "Probit",
    "Softmax",
    "SoftmaxCoupled",
    "SoftmaxFisher",
    "StudentT",
    "TwoClass",
    "Weibull",
    "logistic_average",
    "make_likelihood",
    "parameter",
    "register_likelihood",
    "slopes",
    "tasks",
]

CHECKED_CLASSES = 3  # of a likelihood that is registered
LIKELIHOODS = Registry[type[Likelihood]]("likelihood")


def register_likelihood(likelihood: type[Likelihood]) -> type[Likelihood]:
    """Let users choose a likelihood by its `name`; the first one of a task is its default. Also a decorator of classes.

    Raises
    ------
    InvalidOption
        Another one has this name, or it fails `bcmdist.testing.check_likelihood`.
    """
    from bcmdist.testing import LENIENT_ROUNDING, LENIENT_TOLERANCE, check_likelihood  # quick start

    check_likelihood(likelihood.default(CHECKED_CLASSES), tolerance=LENIENT_TOLERANCE, rounding=LENIENT_ROUNDING)
    return LIKELIHOODS.add(likelihood.name, likelihood)


def make_likelihood(name: str, classes: int | None = None) -> Likelihood:
    """Likelihood by its name, at its default parameters; for so many classes, where it has a process for each.

    Raises
    ------
    InvalidOption
        There is none of this name.
    """
    return LIKELIHOODS[name].default(classes)


def tasks() -> dict[str, tuple[str, ...]]:
    """Names of the likelihoods of each task, its default first, those of methods and of other packages too."""
    load_plugins()
    found: dict[str, tuple[str, ...]] = {}
    for name in LIKELIHOODS:
        task = LIKELIHOODS[name].task
        found[task] = (*found.get(task, ()), name)
    return found


for _likelihood in (
    Gaussian,
    StudentT,
    Gamma,
    InverseGaussian,
    Bernoulli,
    Probit,
    SVM,
    NegativeBinomial,
    Poisson,
    Weibull,
    Exponential,
    Binomial,
    Softmax,
    SoftmaxFisher,
    SoftmaxCoupled,
    OneHot,
):
    LIKELIHOODS.add(_likelihood.name, _likelihood)  # checked by the tests, not at import
