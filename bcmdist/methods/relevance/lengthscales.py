"""Optimise the lengthscales of bumps by the evidence (the adaptive RVM: thesis, section 2.3; SYSTEMS T7).

    dL/dlog theta_d = 1/(s2 theta_d^2) sum_ij w_i D_ij phi_j(x_i) (x_id - c_jd)^2,   D = (y - Phi mu) mu' - Phi Sigma

at fixed precisions and noise (2.38, printed with the wrong sign and without 1/(s2 theta_d^2)). Both the evidence and
its gradient are sums over partitions, for the few functions in the model.
"""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy.optimize import minimize

from bcmdist.learning.training_context import TrainingContext
from bcmdist.methods.relevance.learners import Posterior, State, posterior
from bcmdist.methods.relevance.radial import Radial
from bcmdist.methods.relevance.sums import Functions, RowSums, Sums, functions_of
from bcmdist.model.loading import load_scaling
from bcmdist.model.shared.weights import Weights
from bcmdist.model.units import AFFINE
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.loading import load_array

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
        obs = scaling.observations(rows.obs, AFFINE)
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


def summed(shared: Weights, ground: TrainingContext) -> Sums:
    """Sums of all rows for the given functions, in one pass."""
    with ground.transient(shared.basis.to_arrays()) as references:
        return ground.sum(RowSums(functions_of(shared, ground.scaling, references)))


def gradient(shared: Weights, basis: Radial, found: Posterior, noise, ground: TrainingContext) -> np.ndarray:
    """dL in the log lengthscales of a basis all of whose functions are in the model, (D,)."""
    arrays = basis.to_arrays()
    with ground.transient(arrays | {"mean": found.mean, "covariance": found.covariance}) as references:
        functions = functions_of(shared, ground.scaling, {name: references[name] for name in arrays})
        total = ground.sum(PullOfRows(functions, references["mean"], references["covariance"]))
    return total / (noise * basis.lengthscale**2)


def climbed(shared: Weights, basis: Radial, state: State, ground: TrainingContext) -> np.ndarray:
    """Lengthscales (D,) that increase the evidence, at the precisions and noise of a state.

    One common factor changes all lengthscales where the kernel has one, and one factor those of each group of inputs.
    """
    groups = ground.groups if len(shared.kernel.parameters["lengthscale"]) > 1 else (0,) * len(basis.lengthscale)
    steps, which = np.unique(groups or np.arange(len(basis.lengthscale)), return_inverse=True)
    everything = State(np.arange(len(state.alpha)), state.alpha, state.noise)

    def loss(x):
        moved = replace(basis, lengthscale=basis.lengthscale * np.exp(x[which]))
        few = replace(shared, basis=moved, scale=np.ones(moved.functions))
        found = posterior(summed(few, ground), everything)
        slope = gradient(few, moved, found, state.noise, ground)
        return -found.evidence, -np.bincount(which, slope)

    how = {"bounds": [(-LARGEST_LOG, LARGEST_LOG)] * len(steps), "options": {"maxiter": CLIMB_STEPS}}
    found = minimize(loss, np.zeros(len(steps)), jac=True, method="L-BFGS-B", **how)
    return basis.lengthscale * np.exp(found.x[which])
