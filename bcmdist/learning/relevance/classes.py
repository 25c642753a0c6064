"""Relevance vectors of two classes: from sites of all rows (Tipping 2001; SYSTEMS T25).

At f = Phi w a row is as a measurement of weight Om and target nu / Om; `forms` tells which. The sums of such rows tell
precisions and weights, as for measurements of noise variance 1; there rows are looked at anew, a pass each time, until
the weights stand still. By the first form, Laplace's approximation, w then is the joint mode of all rows,
Phi'dlog p/df = A w, and L its evidence.
"""

import warnings
from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.errors import BcmdistWarning
from bcmdist.learning.ground import Ground
from bcmdist.learning.relevance.forms import NOTHING, Weighed, sites
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
    form: str
    weighed: BlobReference
    """of a `Weighed`"""

    def __call__(self, part, rows) -> Sums:
        scaling = load_scaling(self.functions.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units)
        Phi = self.functions.design(rows.X)
        at = Weighed.from_array(load_array(self.weighed)).marginals(Phi)
        return site_sums(Phi, *sites(self.form, self.likelihood, obs, at))


def site_sums(Phi, omega, nu) -> Sums:
    """Of rows with functions Phi (n, M) and sites Om and nu (n,); Om is nowhere divided by where that matters."""
    least = np.maximum(omega, LEAST_WEIGHT)
    gram = linalg.gram(np.asfortranarray(Phi * np.sqrt(omega)[:, None]))
    return Sums(gram, Phi.T @ nu, float(np.sum(nu**2 / least)), len(nu), float(np.log(least).sum()))


def standing_still(tried: Weights, likelihood, ground: Ground, start: State | None) -> tuple[Problem, State]:
    """The sums of all rows at weights that stand still under the state that they tell, and this."""
    weights, weighed, arrays = np.zeros(tried.size), NOTHING, tried.basis.to_arrays()
    for _ in range(MOST_PASSES):
        with ground.transient(arrays | {"weighed": weighed.to_array()}) as references:
            functions = functions_of(tried, ground.scaling, {name: references[name] for name in arrays})
            how = (ground.options["rvm_classes"], references["weighed"])
            sums = ground.sum(SiteSums(functions, likelihood, ground.classes, *how))
        problem = Problem(sums, tried.size - tried.functions, keep_noise=True, least=LEAST_SHARE)
        start = state = UPDATES[ground.options["rvm_update"]](problem, 1.0, start)
        found, moved = posterior(sums, state), np.zeros(tried.size)
        moved[state.active] = found.mean
        weighed = Weighed(state.active, found.mean, 1.0 / state.alpha, found.covariance)
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
