"""The experts `rvm`, relevance vectors, and `rvm_star`, whose predictive variances grow away from the rows."""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.learning.experts import register_method, weights_of
from bcmdist.learning.method import COMMITTEE, Capabilities, Defaults, Method, Training
from bcmdist.learning.rules import Excludes, Requires
from bcmdist.methods.relevance import training
from bcmdist.methods.relevance.augmented import Augmented, AugmentedSparse
from bcmdist.methods.relevance.dictionaries import Dictionaries, Radial
from bcmdist.methods.relevance.options import RelevanceOptions, SelectionOptions
from bcmdist.model.likelihoods import LIKELIHOODS
from bcmdist.model.likelihoods.classes import Bernoulli
from bcmdist.model.likelihoods.multiclass import OneHot, PerClass
from bcmdist.model.model import KINDS
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.weights import register_basis
from bcmdist.prediction.predictive_model import register_predictor


@dataclass(frozen=True)
class OneVersusAll(PerClass):
    """A logit model of each class against all others, independent between classes.

        log p(y | f) = sum_c log 1 / (1 + exp(-s_c f_c)),   s_c = 1 for the row's own class and -1 for the others
        P(y = c) = p_c / sum_d p_d,   p_c = E 1 / (1 + exp(-f_c))

    log p counts each row once per class. It is not a density of the labels, and its evidence cannot be compared with
    that of a softmax.
    """

    name = "one_against_rest"

    @property
    def each(self) -> Bernoulli:
        return Bernoulli()

    def log_density(self, obs, f) -> np.ndarray:
        return np.sum([self.each.log_density(*one) for one in self._by_class(obs, f)], axis=0)

    def score(self, obs, f) -> np.ndarray:
        return np.column_stack([self.each.score(*one) for one in self._by_class(obs, f)])

    def curvature(self, obs, f) -> np.ndarray:
        return np.column_stack([self.each.curvature(*one) for one in self._by_class(obs, f)])

    def class_probability(self, mean, variance) -> np.ndarray:
        p = np.column_stack([self.each.average(m, v) for m, v in zip(mean.T, variance.T, strict=True)])
        return p / np.maximum(p.sum(axis=1, keepdims=True), np.finfo(float).tiny)

    def learned_as(self) -> OneHot:
        return OneHot.default(max(2, self.processes))

    def _by_class(self, obs, f):
        """Observations of each class against the rest, with the latent of the class."""
        return [(replace(obs, y=(obs.y == c) * 1.0), f[:, c]) for c in range(self.processes)]


class RelevanceVectors(Method):
    """Weights of radial basis functions at rows, selected by the evidence; no residual."""

    residual = "none"
    training = Training()
    rules = (
        Excludes(
            "rvm_lengthscale",
            ("adapted",),
            lambda c: not c.settings.learn,
            "learning with {value}, got no-learn; leave out one of them",
        ),
        Excludes(
            "rvm_lengthscale",
            ("adapted",),
            lambda c: c.likelihood and not c.likelihood.exact,
            "measurements with {value}, got the likelihood {likelihood.name}; leave it out",
        ),
        Requires(
            "rvm_classes",
            ("laplace",),
            lambda c: c.likelihood and c.likelihood.exact,
            "classes with {value}, got the likelihood {likelihood.name}, with which all ways are equal; leave it out",
        ),
    )

    def __init__(self, name: str, options: type[SelectionOptions], likelihoods: tuple[str, ...], defaults: Defaults):
        super().__init__(name)
        self.options, self.defaults = options, defaults
        self.capabilities = Capabilities(
            kernels=("se", "se-iso"),
            likelihoods=likelihoods,
            query_methods=("kmeans", "random"),  # both choose rows at random
            query_from=False,
            target_variance=False,  # the sums of training are of rows with one noise variance
        )

    def shared(self, basis_inputs) -> Shared:
        return weights_of(training.drawn)(basis_inputs)

    def train(self, shared, likelihood, context) -> tuple:
        return training.trained(shared, likelihood, context, errors=self.defaults.predictor == COMMITTEE)

    def candidates(self, settings) -> int:
        return settings.of(SelectionOptions).rvm_dictionary or 0


register_basis(Radial)
KINDS.add(Dictionaries.kind, Dictionaries)
LIKELIHOODS.add(OneVersusAll.name, OneVersusAll)  # checked by the tests, not at import
register_predictor("augmented", Augmented)
register_predictor("augmented_sparse", AugmentedSparse)
register_method(
    RelevanceVectors(
        "rvm",
        RelevanceOptions,
        ("gaussian", "bernoulli", "probit", "one_against_rest"),
        Defaults(kernel="se", classes="one_against_rest"),
    )
)
register_method(
    RelevanceVectors("rvm_star", SelectionOptions, ("gaussian",), Defaults(kernel="se", predictor="augmented"))
)
