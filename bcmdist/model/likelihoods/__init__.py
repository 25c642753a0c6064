"""Registry of the likelihoods p(y | f) of independent rows, by name and by task.

Likelihoods of one latent process for real, two-class, count, positive and censored targets, and likelihoods with one
process per class, all with the interface `interface.Likelihood`. To add a likelihood, write a class
(`interface.OneProcess`) and register it; other packages also list its module under the entry points of
`data.registry`:

    @register_likelihood
    @dataclass(frozen=True)
    class Beta(OneProcess):
        precision: FloatArray = parameter(8.0, (1e-1, 1e5), widens=-1.0)
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

CHECKED_CLASSES = 3  # number of classes in the check of a registered likelihood
LIKELIHOODS = Registry[type[Likelihood]]("likelihood")


def register_likelihood(likelihood: type[Likelihood]) -> type[Likelihood]:
    """Register a likelihood under its `name`; the first of a task is the task's default. Usable as a class decorator.

    Parameters
    ----------
    likelihood : a subclass of `bcmdist.model.likelihoods.Likelihood` with a `name` of its own

    Returns
    -------
    The class.

    Raises
    ------
    InvalidOption
        The name is taken, or the likelihood fails `bcmdist.testing.check_likelihood`.

    Examples
    --------
    >>> from bcmdist.model.likelihoods import Poisson
    >>> @bcmdist.register_likelihood
    ... class Visits(Poisson):
    ...     name = "visits"
    >>> bcmdist.Settings(task="counts", likelihood="visits").likelihood
    'visits'
    """
    from bcmdist.testing.checked import LENIENT_ROUNDING, LENIENT_TOLERANCE  # quick start
    from bcmdist.testing.model import check_likelihood  # quick start

    check_likelihood(likelihood.default(CHECKED_CLASSES), tolerance=LENIENT_TOLERANCE, rounding=LENIENT_ROUNDING)
    return LIKELIHOODS.add(likelihood.name, likelihood)


def make_likelihood(name: str, classes: int | None = None) -> Likelihood:
    """Likelihood by name at its default parameters.

    Parameters
    ----------
    classes : number of classes, where the likelihood has one process per class

    Raises
    ------
    InvalidOption
        No likelihood has this name.
    """
    return LIKELIHOODS[name].default(classes)


def tasks() -> dict[str, tuple[str, ...]]:
    """Names of the likelihoods of each task, the default first, including those of methods and other packages."""
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
