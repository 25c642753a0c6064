"""Relevance vectors of two classes: from sites of all rows (Tipping 2001; SYSTEMS T25).

At f = Phi w a row is as a measurement of weight Om and target nu / Om; `forms` tells which. The sums of such rows tell
precisions and weights, as for measurements of noise variance 1; there rows are looked at again, a pass each time, until
the weights stand still. By the first form, Laplace's approximation, w then is the joint mode of all rows,
Phi'dlog p/df = A w, and L its evidence.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.errors import BcmdistWarning
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.relevance.forms import NOTHING, Weighed, sites
from bcmdist.methods.relevance.learners import Posterior, Problem, State, posterior
from bcmdist.methods.relevance.sums import Functions, Sums, functions_of
from bcmdist.methods.relevance.updates import UPDATES, Learner
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.shared.weights import Weights
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

# A pass is the last where it moves f by no more, in units of what the rows tell of it; and passes at most.
STILL, MOST_PASSES = 1e-4, 50
# Passes in which functions may come in; later ones only leave: one that hardly matters may do both in turn for ever.
OPEN_PASSES = 25
# Passes that move further than the last one shorten the step by this factor, others lengthen it, within the limits:
# rows that are sure of their class do not resist where others pull, and whole steps may turn back for ever.
SHORTER, LONGER, LEAST_STEP = 0.5, 1.5, 1.0 / 64.0
# Smallest precision as a share of what rows know of a function alone: under a flatter prior experts, who know some of
# the rows only, do not find their own modes (on MNIST, of 3500 rows each). Arbitrary.
LEAST_SHARE = 1e-6
# Smallest precision of a weight, which logits are sums of: where classes do not overlap the evidence grows with them
# without end, and beyond hundreds rows say nothing that can be told from rounding. Arbitrary.
LEAST_PRECISION = 1e-4
LEAST_WEIGHT = 1e-12  # of a row, below which its share in constants is that of such a one


@dataclass(frozen=True)
class SiteSums:
    """The sums of a partition, linearised at some weights."""

    functions: Functions
    likelihood: Likelihood
    classes: tuple[float, ...] | None
    form: str
    weighed: BlobReference
    """of a `Weighed`"""
    own: int | None = None
    """class that stands against the rest"""

    def __call__(self, part, rows) -> Sums:
        scaling = load_scaling(self.functions.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        if self.own is not None:
            obs = replace(obs, y=(obs.y == self.own) * 1.0)
        Phi = self.functions.design(rows.X)
        at = Weighed.from_array(load_array(self.weighed)).marginals(Phi)
        return site_sums(Phi, *sites(self.form, self.likelihood, obs, at))


def site_sums(Phi, omega, nu) -> Sums:
    """Of rows with functions Phi (n, M) and sites Om and nu (n,); Om is nowhere divided by where that matters."""
    least = np.maximum(omega, LEAST_WEIGHT)
    gram = linalg.gram(np.asfortranarray(Phi * np.sqrt(omega)[:, None]))
    return Sums(gram, Phi.T @ nu, float(np.sum(nu**2 / least)), len(nu), float(np.log(least).sum()))


def closed(update: Learner, problem: Problem, start: State) -> State:
    """What is learned of the functions that are in a state."""
    among = replace(problem, sums=problem.sums.some(start.active))
    state = update(among, start.noise, State(np.arange(len(start.active)), start.alpha, start.noise))
    return replace(state, active=start.active[state.active])


def weighed_at(weights, state: State, found: Posterior) -> Weighed:
    """What is believed of weights (B + P,) that are on the way to a posterior: its variances, at these."""
    some = np.union1d(state.active, np.flatnonzero(weights))
    places, prior, covariance = np.searchsorted(some, state.active), np.zeros(len(some)), np.zeros((len(some),) * 2)
    prior[places], covariance[np.ix_(places, places)] = 1.0 / state.alpha, found.covariance
    return Weighed(some, weights[some], prior, covariance)


def standing_still(
    tried: Weights, likelihood, ground: TrainingContext, start: State | None, own=None
) -> tuple[Problem, State]:
    """The sums of all rows at weights that stand still under the state that they tell, and this.

    `own`: the class that stands against the rest, of more than two.
    """
    weights, weighed, arrays, share, last = np.zeros(tried.size), NOTHING, tried.basis.to_arrays(), 1.0, np.inf
    for number in range(MOST_PASSES):
        with ground.transient(arrays | {"weighed": weighed.to_array()}) as references:
            functions = functions_of(tried, ground.scaling, {name: references[name] for name in arrays})
            how = (ground.options["rvm_classes"], references["weighed"], own)
            sums = ground.sum(SiteSums(functions, likelihood, ground.classes, *how))
        problem = Problem(sums, tried.size - tried.functions, keep_noise=True, least=LEAST_SHARE, floor=LEAST_PRECISION)
        update = UPDATES[ground.options["rvm_update"]]
        shut = start if number >= OPEN_PASSES else None
        start = state = closed(update, problem, shut) if shut else update(problem, 1.0, start)
        found, step = posterior(sums, state), -weights
        step[state.active] += found.mean
        change = float(np.sqrt(step @ sums.gram @ step))
        if change <= STILL:
            break
        share = max(SHORTER * share, LEAST_STEP) if change > last else min(LONGER * share, 1.0)
        weights, last = weights + share * step, change
        weighed = weighed_at(weights, state, found)
    else:
        text = (
            f"relevance vectors: expected weights to stand still, after {MOST_PASSES} passes they move by {change:.1e}"
        )
        warnings.warn(BcmdistWarning(f"{text} deviations; take another --seed or --query"), stacklevel=2)
    return problem, state
