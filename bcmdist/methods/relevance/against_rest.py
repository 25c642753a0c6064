"""One-against-rest classification: one model of two classes per class."""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.model.likelihoods.classes import Bernoulli
from bcmdist.model.likelihoods.multiclass import OneHot, PerClass


@dataclass(frozen=True)
class OneAgainstRest(PerClass):
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
