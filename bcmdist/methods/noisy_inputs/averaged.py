"""Rows with noisy inputs by moments averaged over the inputs, as local predictions take them: evidence and message.

The experts of spatial partitions: committee and local experts then belong to the same model, that of PIC with averaged
moments (`bcmdist.prediction.local.uncertain_rows`), and no inputs are drawn.
"""

import numpy as np

from bcmdist import linalg
from bcmdist.experts.evidence import evidence_of_covariance
from bcmdist.experts.expert import find_mode, gaussian_message
from bcmdist.experts.laplace import laplace_message
from bcmdist.experts.message import Message, zero
from bcmdist.experts.residual import Block
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process
from bcmdist.model.mean import prior_covariance
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.uncertain_rows import AtUncertainRows, possible_inputs


def averaged_message(shared: Shared, process: Process, noisy: NoisyRows) -> Message:
    """Message of rows, n >= 1, whose values of f are normal with averaged moments; as `expert_message`.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    nothing, likelihood = zero(shared.size), process.likelihood
    seen = AtUncertainRows(committee_at_rows(shared, shared.belief(nothing.eta, nothing.precision)))
    X = possible_inputs(noisy.inputs, noisy.root)
    V = np.asfortranarray(seen.columns(X))
    Lam = seen.left_lower(V, X)
    Lam[np.diag_indices_from(Lam)] += seen.input_noise(V, X)
    if likelihood.exact:
        return gaussian_message(V, Block(Lam), likelihood.targets(noisy.obs), likelihood.noise(noisy.obs))
    f = find_mode(np.asfortranarray(linalg.mirror(Lam) + V @ V.T), noisy.obs, likelihood)
    return laplace_message(V, Block(Lam), noisy.obs, likelihood, f)


def averaged_evidence(process: Process, noisy: NoisyRows) -> tuple[float, np.ndarray]:
    """log p(y) for values of f that are normal with the moments of `bcmdist.prediction.local.uncertain_rows`, and its
    gradient in the log hyper-parameters, (P,).

    Covariances of two rows are means of k over pairs of their points, and variances means of k(x, x) over points. The
    prior mean is taken at the measured inputs.

    Raises
    ------
    LaplaceNotConverged, NotPositiveDefinite
    """
    n, D = noisy.inputs.shape
    points = np.moveaxis(possible_inputs(noisy.inputs, noisy.root).reshape(n, -1, D), 1, 0)
    K, variance, pullbacks, own = np.zeros((n, n)), np.zeros(n), [], []
    for a, p in enumerate(points):
        for b, q in enumerate(points[: a + 1]):
            k, pullback = process.kernel.cross_and_pullback(p, q)
            K += k if a == b else k + k.T
            pullbacks.append(((1.0 if a == b else 2.0) / len(points) ** 2, pullback))
            if a == b:
                variance += k.diagonal() / len(points)
                own.append(pullback)
    K /= len(points) ** 2
    K[np.diag_indices_from(K)] = variance
    value, adjoint, tail = evidence_of_covariance(
        prior_covariance(K, process.mean, noisy.inputs), process.likelihood, noisy.obs
    )
    diagonal = np.diag(np.diag(adjoint)) / len(points)
    adjoint = 0.5 * (adjoint + adjoint.T)
    adjoint[np.diag_indices_from(adjoint)] = 0.0
    gradient = sum(share * pullback(adjoint) for share, pullback in pullbacks)
    return value, np.concatenate([gradient + sum(pullback(diagonal) for pullback in own), tail])
