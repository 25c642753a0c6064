"""Relevance vectors for two classes, from Gaussian sites of all rows (Tipping 2001; SYSTEMS T25).

At f = Phi w a row is equivalent to a Gaussian observation of weight Om and target nu / Om, computed by one of three
forms of sites. The sums over such rows determine precisions and weights, as for Gaussian noise of variance 1. Sites are
recomputed in one pass over the rows per iteration until the weights converge. With the form "laplace", w is then the
joint mode of all rows, Phi'dlog p/df = A w, and L is the Laplace evidence.

The three forms differ in the variance V of the distribution of f without the row. At a row, the posterior is f ~ N(mu,
Sig), the prior f ~ N(0, K), K = [Phi A^-1 Phi']_ii, and the distribution without this row (cavity) f ~ N(m, V), where

    laplace   V = 0: the joint mode of all rows
    naive     V = K: naive mean field
    cavity    1/V = 1/Sig - Om: the cavity of expectation propagation (adaptive TAP)

and m is such that N(m, V) p(y | f) has mean mu: m = mu - V tau,  tau = dlog Z/dm,  Z = E p(y | m + V^1/2 z).
The row is then replaced by the site exp(nu f - 1/2 Om f^2),

    Om = -tau'/(1 + V tau'),   nu = tau + Om mu,

so that A w = Phi'tau once the weights w converge (Quinonero-Candela 2004, paper C, section 4, whose (18) counts the
noise of the probit twice: Z = Phi(+-m / (1 + V)^1/2)). Z is computed by quadrature, which also handles row weights, for
probit and bernoulli alike; the paper covers the probit only.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.errors import BcmdistWarning, EPNotConverged
from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.relevance.learners import Posterior, Problem, State, posterior
from bcmdist.methods.relevance.sequential import UPDATES, Learner
from bcmdist.methods.relevance.sums import Functions, Sums, functions_of
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.likelihoods.tilted import tilted_site
from bcmdist.model.loading import load_scaling
from bcmdist.model.shared.weights import Weights
from bcmdist.model.targets import class_numbers
from bcmdist.storage.commits import BlobReference, load_array

# Convergence: moves of m, in units of V^1/2, and of log V; far below the tolerance of the passes over all rows, and
# above rounding. Newton's method takes about five steps.
STILL_CAVITY, MOST_STEPS = 1e-7, 100


@dataclass(frozen=True)
class Weighed:
    """Belief about the weights of some functions; tasks receive it as one array."""

    active: np.ndarray
    """indices of the functions in the model, (m,)"""
    mean: np.ndarray
    """(m,)"""
    prior: np.ndarray
    """prior variances 1/alpha, (m,)"""
    covariance: np.ndarray
    """(m, m)"""

    def to_array(self) -> np.ndarray:
        """Store in one array (3 + m, m); inverse of `from_array`."""
        return np.vstack([self.active, self.mean, self.prior, self.covariance])

    @classmethod
    def from_array(cls, array) -> "Weighed":
        """Restore from the result of `to_array`."""
        return cls(array[0].astype(int), array[1], array[2], array[3:])

    def marginals(self, Phi) -> "Marginals":
        """Marginal beliefs about f at rows with functions Phi, (n, M)."""
        some = Phi[:, self.active]
        return Marginals(some @ self.mean, some**2 @ self.prior, np.einsum("ij,ij->i", some @ self.covariance, some))


NOTHING = Weighed(np.empty(0, dtype=int), np.empty(0), np.empty(0), np.empty((0, 0)))


@dataclass(frozen=True)
class Marginals:
    """Marginal beliefs about f at n rows."""

    mean: np.ndarray
    """mu, (n,)"""
    prior: np.ndarray
    """K, (n,)"""
    variance: np.ndarray
    """Sig, (n,)"""

    def __getitem__(self, rows) -> "Marginals":
        return Marginals(self.mean[rows], self.prior[rows], self.variance[rows])


def laplace(at: Marginals, omega) -> np.ndarray:
    """V = 0."""
    return np.zeros_like(omega)


def naive(at: Marginals, omega) -> np.ndarray:
    """V = K."""
    return at.prior


def cavity(at: Marginals, omega) -> np.ndarray:
    """V = Sig / (1 - Om Sig), at most K; before convergence a site may be more informative than the posterior."""
    left = 1.0 - omega * at.variance
    return np.divide(at.variance, left, out=at.prior.copy(), where=at.variance <= at.prior * left)


FORMS: dict[str, Callable[[Marginals, np.ndarray], np.ndarray]] = {
    "laplace": laplace,
    "naive": naive,
    "cavity": cavity,
}


def sites(form: str, likelihood, obs, at: Marginals) -> tuple[np.ndarray, np.ndarray]:
    """Om and nu of rows, (n,) each, by Newton steps m <- mu + V (Om mu - nu) starting from V = 0.

    Raises
    ------
    EPNotConverged
        m does not converge for some rows.
    """
    omega = likelihood.curvature(obs, at.mean)
    nu = omega * at.mean + likelihood.score(obs, at.mean)
    moving, centre, without = np.arange(len(nu)), at.mean.copy(), np.zeros_like(nu)
    for _ in range(MOST_STEPS):
        some, tau = at[moving], omega[moving]
        V = FORMS[form](some, tau)
        m = some.mean + V * (tau * some.mean - nu[moving])
        still = np.abs(m - centre[moving]) <= STILL_CAVITY * np.sqrt(V)
        still &= np.abs(V - without[moving]) <= STILL_CAVITY * V
        centre[moving], without[moving] = m, V
        moving = moving[~still]
        if not len(moving):
            return omega, nu
        _, omega[moving], nu[moving] = tilted_site(likelihood, obs[moving], centre[moving], without[moving])
    raise EPNotConverged(
        f"rvm_classes: expected the {form} distributions of all rows to converge in {MOST_STEPS} steps, got "
        f"{len(moving)} that still change; give --rvm-classes laplace"
    )


# Convergence: a pass moves f by less than this, in units of the information of the rows; and largest number of passes.
STILL, MOST_PASSES = 1e-4, 50
# Functions are added in these first passes only; later ones only drop functions, because one of marginal value could be
# added and dropped for ever.
OPEN_PASSES = 25
# A pass that moves further than the previous one shortens the step by this factor, others lengthen it, within the
# limits: the curvature at rows of nearly certain class is small, and full steps may oscillate for ever.
SHORTER, LONGER, LEAST_STEP = 0.5, 1.5, 1.0 / 64.0
# Smallest precision as a share of the rows' information about a single function: under a flatter prior experts, each
# with part of the rows, do not find their own modes. Arbitrary.
LEAST_SHARE = 1e-6
# Smallest precision of a weight (logits are sums of weights): where classes do not overlap the evidence grows with the
# weights without limit, and beyond hundreds the likelihood is constant up to rounding. Arbitrary.
LEAST_PRECISION = 1e-4
LEAST_WEIGHT = 1e-12  # lower bound of a site's weight in the constants


@dataclass(frozen=True)
class SiteSums:
    """Task: the sums of a partition, with sites at the current belief about the weights."""

    functions: Functions
    likelihood: Likelihood
    classes: tuple[float, ...] | None
    form: str
    weighed: BlobReference
    """array of a `Weighed`"""
    positive_class: int | None = None
    """class of the positive rows, against the rest; None for two classes"""

    def __call__(self, part, rows) -> Sums:
        scaling = load_scaling(self.functions.scaling)
        obs = scaling.observations(class_numbers(rows.obs, self.classes), self.likelihood.units, rows.X)
        if self.positive_class is not None:
            obs = replace(obs, y=(obs.y == self.positive_class) * 1.0)
        Phi = self.functions.design(rows.X)
        at = Weighed.from_array(load_array(self.weighed)).marginals(Phi)
        return site_sums(Phi, *sites(self.form, self.likelihood, obs, at))


def site_sums(Phi, omega, nu) -> Sums:
    """Sums over rows with functions Phi (n, M) and sites Om and nu (n,); small Om are bounded only in the constants."""
    least = np.maximum(omega, LEAST_WEIGHT)
    gram = linalg.gram(np.asfortranarray(Phi * np.sqrt(omega)[:, None]))
    return Sums(gram, Phi.T @ nu, float(np.sum(nu**2 / least)), len(nu), float(np.log(least).sum()))


def closed(update: Learner, problem: Problem, start: State) -> State:
    """Learn precisions among the functions of a state only; none is added."""
    among = replace(problem, sums=problem.sums.some(start.active))
    state = update(among, start.noise, State(np.arange(len(start.active)), start.alpha, start.noise))
    return replace(state, active=start.active[state.active])


def weighed_at(weights, state: State, found: Posterior) -> Weighed:
    """Belief about weights during the iteration: the posterior's covariance, centred at `weights` (B + P,)."""
    some = np.union1d(state.active, np.flatnonzero(weights))
    places, prior, covariance = np.searchsorted(some, state.active), np.zeros(len(some)), np.zeros((len(some),) * 2)
    prior[places], covariance[np.ix_(places, places)] = 1.0 / state.alpha, found.covariance
    return Weighed(some, weights[some], prior, covariance)


def standing_still(
    tried: Weights, likelihood, context: TrainingContext, start: State | None, positive_class=None
) -> tuple[Problem, State]:
    """Repeat passes over all rows until the weights converge; return the sums at these weights, and the state.

    Parameters
    ----------
    positive_class : class against the rest, for more than two classes
    """
    weights, weighed, arrays, share, last = np.zeros(tried.size), NOTHING, tried.basis.to_arrays(), 1.0, np.inf
    for number in range(MOST_PASSES):
        with context.transient(arrays | {"weighed": weighed.to_array()}) as references:
            functions = functions_of(tried, context.scaling, {name: references[name] for name in arrays})
            how = (context.options.rvm_classes, references["weighed"], positive_class)
            sums = context.sum(SiteSums(functions, likelihood, context.classes, *how))
        problem = Problem(sums, tried.size - tried.functions, keep_noise=True, least=LEAST_SHARE, floor=LEAST_PRECISION)
        update = UPDATES[context.options.rvm_update]
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
