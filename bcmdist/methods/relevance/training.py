"""Train relevance vectors: one pass over all rows computes the sums for a dictionary, from which functions, prior
precisions and noise are learned.

A partition's message about the selected functions equals a block of its sums, scaled by the prior. Experts nevertheless
compute it again, in a small share of the time, so that partitions enter the ledger as usual.

Lengthscales of bumps may be optimised by the evidence (the adaptive RVM: thesis, section 2.3; SYSTEMS T7):

    dL/dlog theta_d = 1/(s2 theta_d^2) sum_ij w_i D_ij phi_j(x_i) (x_id - c_jd)^2,   D = (y - Phi mu) mu' - Phi Sigma

at fixed precisions and noise (2.38, printed with the wrong sign and without 1/(s2 theta_d^2)). Both the evidence and
its gradient are sums over partitions, for the few functions in the model.

The rows select the functions, so that their leave-one-out errors given these functions are too small. Of a moderate
number of rows a sample is left out first, and the ratio of its errors to the others' is a factor of all errors; the
functions of the result are selected by all rows, beginning at the lengthscales that were adapted without the sample.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from scipy.optimize import minimize

from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.training_context import TrainingContext
from bcmdist.learning.training_errors import training_errors
from bcmdist.methods.relevance.classes import standing_still
from bcmdist.methods.relevance.dictionaries import Radial, side_by_side
from bcmdist.methods.relevance.learners import Posterior, Problem, State, posterior
from bcmdist.methods.relevance.sequential import UPDATES
from bcmdist.methods.relevance.sums import Functions, RowSums, Sums, functions_of
from bcmdist.model.kernels import SquaredExponential
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.loading import load_scaling
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.weights import Weights
from bcmdist.model.units import AFFINE
from bcmdist.storage.commits import BlobReference, load_array

CLIMB_STEPS = 20
LARGEST_LOG = float(np.log(10.0))  # largest log factor by which one optimisation may change a lengthscale


@dataclass(frozen=True)
class PullOfRows:
    """Task: a partition's part of the gradient, (D,), times s2 theta_d^2."""

    functions: Functions
    mean: BlobReference
    """mu of the weights of all functions in the model, (B + P,)"""
    covariance: BlobReference
    """Sigma, (B + P, B + P)"""

    def __call__(self, part, rows) -> np.ndarray:
        scaling, basis = load_scaling(self.functions.scaling), cast(Radial, self.functions.of_basis())
        obs = scaling.observations(rows.obs, AFFINE, rows.X)
        Phi = self.functions.design(rows.X)
        posterior = load_array(self.mean), load_array(self.covariance)
        return pull(basis, scaling.inputs(rows.X), Phi, obs.y, obs.weight, *posterior)


def pull(basis: Radial, X, Phi, y, weight, mean, covariance) -> np.ndarray:
    """sum_ij w_i D_ij phi_j(x_i) (x_id - c_jd)^2 over the rows X (n, D), scaled, with design Phi (n, B + P): (D,)."""
    B = basis.functions
    E = np.outer(y - Phi @ mean, mean[:B]) - Phi @ covariance[:, :B]
    E *= weight[:, None] * Phi[:, :B]
    C = basis.centres
    return E.sum(axis=1) @ X**2 - 2.0 * np.einsum("id,id->d", X, E @ C) + E.sum(axis=0) @ C**2


def summed(shared: Weights, context: TrainingContext) -> Sums:
    """Sums of all rows for the given functions, in one pass."""
    with context.transient(shared.basis.to_arrays()) as references:
        return context.sum(RowSums(functions_of(shared, context.scaling, references)))


def gradient(shared: Weights, basis: Radial, found: Posterior, noise, context: TrainingContext) -> np.ndarray:
    """dL in the log lengthscales of a basis all of whose functions are in the model, (D,)."""
    arrays = basis.to_arrays()
    with context.transient(arrays | {"mean": found.mean, "covariance": found.covariance}) as references:
        functions = functions_of(shared, context.scaling, {name: references[name] for name in arrays})
        total = context.sum(PullOfRows(functions, references["mean"], references["covariance"]))
    return total / (noise * basis.lengthscale**2)


def climbed(shared: Weights, basis: Radial, state: State, context: TrainingContext) -> np.ndarray:
    """Lengthscales (D,) that increase the evidence, at the precisions and noise of a state.

    One common factor changes all lengthscales where the kernel has one, and one factor those of each group of inputs.
    """
    groups = context.groups if len(shared.kernel.parameters["lengthscale"]) > 1 else (0,) * len(basis.lengthscale)
    steps, which = np.unique(groups or np.arange(len(basis.lengthscale)), return_inverse=True)
    everything = State(np.arange(len(state.alpha)), state.alpha, state.noise)

    def loss(x):
        moved = replace(basis, lengthscale=basis.lengthscale * np.exp(x[which]))
        few = replace(shared, basis=moved, scale=np.ones(moved.functions))
        found = posterior(summed(few, context), everything)
        slope = gradient(few, moved, found, state.noise, context)
        return -found.evidence, -np.bincount(which, slope)

    how = {"bounds": [(-LARGEST_LOG, LARGEST_LOG)] * len(steps), "options": {"maxiter": CLIMB_STEPS}}
    found = minimize(loss, np.zeros(len(steps)), jac=True, method="L-BFGS-B", **how)
    return basis.lengthscale * np.exp(found.x[which])


# Largest number of alternations between lengthscales and precisions, and smallest gain, in nats, for another one.
MOST_TURNS, LEAST_TURN = 10, 1.0
# Prior standard deviation of the single function that is kept where none is relevant: negligible.
NEXT_TO_NOTHING = 1e-6


def drawn(basis_inputs: BasisInputs) -> tuple[Radial, float]:
    """Bumps around sampled rows, drawn at random."""
    assert basis_inputs.row is not None
    return dictionary(
        basis_inputs.sample,
        basis_inputs.row,
        basis_inputs.kernel,
        basis_inputs.options.rvm_dictionary or basis_inputs.count,
    )


def dictionary(sample, rows, kernel, count) -> tuple[Radial, float]:
    """Bumps around the first rows of a randomly ordered sample, without duplicates; and their prior deviation, 1.

    Parameters
    ----------
    sample : (n, D)
    rows : numbers of these rows in the data, (n,)
    kernel : squared exponential; its lengthscales are those of the functions
    count : largest number of functions
    """
    first = np.sort(np.unique(sample, axis=0, return_index=True)[1])[:count]
    lengthscale = np.array(kernel.metric(sample.shape[1]))
    return Radial(sample[first], lengthscale, rows[first].astype(float)), 1.0


# One in so many rows is left out to learn the scale of errors, and none of fewer or of more rows: of few it says too
# little, and many hardly fit the noise by selecting functions.
LEFT_OUT, LEAST_ROWS, MOST_ROWS = 5, 250, 20_000


def trained(shared: Shared, likelihood, context: TrainingContext, *, errors: bool) -> tuple[Shared, Likelihood]:
    """The functions selected by the evidence of all rows, and the likelihood with the learned noise.

    The noise is kept where it was given. For one-against-rest, functions are selected for each class separately. With
    `errors`, it is measured how much larger errors are at rows that are left out, where there are enough rows.
    """
    if likelihood.independent_processes:
        each = [
            grown(cast(Weights, shared), likelihood.each, context, positive_class=c)
            for c in range(likelihood.processes)
        ]
        return side_by_side([relevant(tried, state) for tried, _, state in each]), likelihood
    if not likelihood.exact:
        tried, _, state = grown(cast(Weights, shared), likelihood, context)
        return relevant(tried, state), likelihood
    rows = sum(part.rows for part in context.parts)
    if errors and context.learn and LEAST_ROWS <= rows <= MOST_ROWS:
        shared = _measure_left_out_errors(cast(Weights, shared), likelihood, context, rows)
    tried, state = learned(cast(Weights, shared), likelihood, context)
    return relevant(tried, state), with_noise(likelihood, state)


def with_noise(likelihood, state: State) -> Likelihood:
    """The likelihood with the learned noise."""
    return replace(likelihood, noise_variance=np.array([state.noise]))


def learned(shared: Weights, likelihood, context: TrainingContext) -> tuple[Weights, State]:
    """Functions for measurements, at adapted lengthscales if asked for, and the state that selects some of them."""
    tried, problem, state = grown(shared, likelihood, context)
    if context.options.rvm_lengthscale == "adapted" and np.any(state.active < problem.free):
        return adapted(tried, problem, state, context)
    return tried, state


def _measure_left_out_errors(shared: Weights, likelihood, context: TrainingContext, rows: int) -> Weights:
    """Store how much larger errors are at rows that are left out; return functions at the lengthscales adapted then.

    The sample is uniform: parts of it may be left out as they are. Nothing is done if it has fewer than about half of
    the rows: the functions that they select would be others.
    """
    parts = context.sampled(rows, -(-rows // (2 * LEFT_OUT)))
    if len(parts) < LEFT_OUT:
        return shared
    held, seen = parts[: len(parts) // LEFT_OUT], parts[len(parts) // LEFT_OUT :]
    tried, state = learned(shared, likelihood, replace(context, parts=seen))
    ratio = training_errors(relevant(tried, state), with_noise(likelihood, state), context, seen, held).ratio
    if ratio > 1.0:
        context.found["left_out_ratio"] = ratio
    basis = cast(Radial, tried.basis)
    whole = cast(Radial, shared.basis)
    return replace(shared, basis=replace(whole, lengthscale=basis.lengthscale), kernel=tried.kernel)


def grown(
    whole: Weights, likelihood, context: TrainingContext, *, positive_class: int | None = None
) -> tuple[Weights, Problem, State]:
    """Some functions of a dictionary, their sums, and the state with the selected ones.

    A dictionary larger than `context.count` is processed in blocks, each together with the functions selected so far,
    in one pass over the rows per block. This is the subspace EM of section 2.4 of the thesis (SYSTEMS T8), for whole
    blocks of functions and any learner.
    """
    held, learn = (
        whole.mean.weights(whole.inputs),
        measured if likelihood.exact else partial(standing_still, positive_class=positive_class),
    )
    kept, start = np.arange(0), None
    for block in np.array_split(np.arange(whole.functions), -(-whole.functions // context.count)):
        names = np.sort(np.concatenate([kept, block]))
        tried = replace(whole, basis=cast(Radial, whole.basis).some(names), scale=whole.scale[names])
        if start is not None:
            places = np.append(np.searchsorted(names, kept), len(names) + np.arange(held))
            start = replace(start, active=places)
        problem, state = learn(tried, likelihood, context, start)
        start = state
        kept = names[state.active[state.active < problem.free]]
    return tried, problem, state


def measured(tried: Weights, likelihood, context: TrainingContext, start: State | None) -> tuple[Problem, State]:
    """The sums of rows with Gaussian noise, and the state learned from them."""
    problem = Problem(summed(tried, context), tried.size - tried.functions, keep_noise=not context.learn)
    return problem, UPDATES[context.options.rvm_update](problem, float(likelihood.noise_variance[0]), start)


def adapted(shared: Weights, problem: Problem, state: State, context: TrainingContext) -> tuple[Weights, State]:
    """Weights and state of higher evidence, by alternating updates of lengthscales and of precisions.

    Each alternation takes further passes over the rows. The last one is discarded where it does not raise the evidence.
    """
    best, lengths = posterior(problem.sums, state).evidence, len(shared.kernel.parameters["lengthscale"])
    for _ in range(MOST_TURNS):
        basis = cast(Radial, shared.basis)
        theta = climbed(shared, basis.some(state.active[state.active < shared.functions]), state, context)
        kernel = replace(cast(SquaredExponential, shared.kernel), lengthscale=theta[:lengths])
        moved = replace(shared, basis=replace(basis, lengthscale=theta), kernel=kernel)
        problem = replace(problem, sums=summed(moved, context))
        after = UPDATES[context.options.rvm_update](problem, state.noise, state)
        evidence = posterior(problem.sums, after).evidence
        if evidence <= best:
            break
        shared, state, gain, best = moved, after, evidence - best, evidence
        if gain < LEAST_TURN:
            break
    return shared, state


def relevant(shared: Weights, state: State) -> Weights:
    """The selected functions with their prior scales; if there are none, the first function with a negligible scale."""
    inside = state.active < shared.functions
    kept, scale = state.active[inside], 1.0 / np.sqrt(state.alpha[inside])
    if not len(kept):
        kept, scale = np.array([0]), np.array([NEXT_TO_NOTHING])
    return replace(shared, basis=cast(Radial, shared.basis).some(kept), scale=scale)
