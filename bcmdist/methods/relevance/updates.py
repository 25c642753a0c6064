"""Algorithms of sparse Bayesian learning by the names of `rvm_update`."""

from collections.abc import Callable

from bcmdist.methods.relevance.learners import State, direct, em_step, mackay_step, stepwise
from bcmdist.methods.relevance.sequential import fast

# Called with a problem, an initial noise variance and optionally a state to start from.
Learner = Callable[..., State]
UPDATES: dict[str, Learner] = {
    "fast": fast,
    "em": stepwise(em_step),
    "mackay": stepwise(mackay_step),
    "direct": direct,
}
