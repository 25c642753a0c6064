"""Relevance vectors of two classes by Laplace's approximation at the joint mode of all rows (Tipping 2001; SYSTEMS T25,
with V^c = 0).

At f = Phi w a row is as a measurement of weight h = -d2 log p/df2 and target f + h^-1 dlog p/df. The sums of such rows
tell precisions and weights, as for measurements of noise variance 1; there rows are linearised anew, a pass each time,
until the weights stand still. Then w is the mode, Phi'dlog p/df = A w, and L the evidence of Laplace's approximation.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.errors import BcmdistWarning
from bcmdist.learning.ground import Ground
from bcmdist.learning.relevance.learners import Problem, State, posterior
from bcmdist.learning.relevance.sums import Functions, Sums, functions_of
from bcmdist.learning.relevance.updates import UPDATES
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.shared.weights import Weights
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

# A pass is the last where it moves f by no more, in units of what the rows tell of it; and passes at most.
STILL, MOST_PASSES = 1e-4, 50
# Smallest precision as a share of what rows know of a function alone: under a flatter prior experts, who know some of
# the rows only, do not find their own modes (on MNIST, of 3500 rows each). Arbitrary.
LEAST_SHARE = 1e-6
LEAST_WEIGHT = 1e-12  # of a row, below which its share in constants is that of such a one


@dataclass(frozen=True)
class SiteSums:
    """The sums of a partition, linearised at some weights."""

    functions: Functions
    likelihood: Likelihood
    classes: tuple[float, ...] | None
    weights: BlobReference
    """(B + P,)"""

    def __call__(self, part, rows) -> Sums:
        scaling = load_scaling(self.functions.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        Phi = self.functions.design(rows.X)
        return site_sums(Phi, Phi @ load_array(self.weights), self.likelihood, obs)


def site_sums(Phi, f, likelihood, obs) -> Sums:
    """Of rows with functions Phi (n, M), linearised at f (n,); h is nowhere divided by where that matters."""
    h, score = likelihood.curvature(obs, f), likelihood.score(obs, f)
    pulled, least = h * f + score, np.maximum(h, LEAST_WEIGHT)
    gram = linalg.gram(np.asfortranarray(Phi * np.sqrt(h)[:, None]))
    return Sums(gram, Phi.T @ pulled, float(np.sum(pulled**2 / least)), len(f), float(np.log(least).sum()))


def at_the_mode(tried: Weights, likelihood, ground: Ground, start: State | None) -> tuple[Problem, State]:
    """The sums of all rows at the mode under the state that they tell, and this."""
    weights, arrays = np.zeros(tried.size), tried.basis.to_arrays()
    for _ in range(MOST_PASSES):
        with ground.transient(arrays | {"weights": weights}) as references:
            functions = functions_of(tried, ground.scaling, {name: references[name] for name in arrays})
            sums = ground.sum(SiteSums(functions, likelihood, ground.classes, references["weights"]))
        problem = Problem(sums, tried.size - tried.functions, keep_noise=True, least=LEAST_SHARE)
        start = state = UPDATES[ground.options["rvm_update"]](problem, 1.0, start)
        moved = np.zeros(tried.size)
        moved[state.active] = posterior(sums, state).mean
        step, weights = moved - weights, moved
        change = float(np.sqrt(step @ sums.gram @ step))
        if change <= STILL:
            break
    else:
        text = (
            f"relevance vectors: expected weights to stand still, after {MOST_PASSES} passes they move by {change:.1e}"
        )
        warnings.warn(BcmdistWarning(f"{text} deviations; take another --seed or --query"), stacklevel=2)
    return problem, state
