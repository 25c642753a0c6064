"""Ways to learn which functions matter, by the names by which users choose them."""

from collections.abc import Callable

from bcmdist.methods.relevance.learners import State, direct, em_step, mackay_step, stepwise
from bcmdist.methods.relevance.sequential import fast

# From all functions, or none, with a noise to begin with; or from a state.
Learner = Callable[..., State]
UPDATES: dict[str, Learner] = {
    "fast": fast,
    "em": stepwise(em_step),
    "mackay": stepwise(mackay_step),
    "direct": direct,
}
