"""Expectation propagation: the alternative to Laplace for approximating an expert's likelihood by a Gaussian.

Laplace fits a Gaussian to the mode, EP to the moments. Each row's likelihood becomes a site

    t(f) = exp(c + nu f - 1/2 tau f^2),   tau >= 0

chosen so that cavity times site has the normaliser, mean and variance of cavity times likelihood; the cavity is the
belief without that row. Sites replace the weights and pseudo-targets of a linearised likelihood in the message (SYSTEMS
I.4). With several passes, in which the other experts' messages enter an expert's prior, the fixed point is EP of the
whole committee's model (SYSTEMS I.5 iii). All sites are updated in parallel.
(Minka 2001; Rasmussen & Williams 2006, section 3.6.)
"""

from dataclasses import dataclass
from typing import cast

import numpy as np

from bcmdist import linalg
from bcmdist.data.observations import Observations
from bcmdist.errors import EPNotConverged
from bcmdist.experts import laplace
from bcmdist.experts.factor import Triangular
from bcmdist.experts.message import Message, zero
from bcmdist.experts.residual import kind_of, refuse_uncoupled
from bcmdist.experts.residual_interface import Residual
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods.interface import OneProcess
from bcmdist.model.likelihoods.tilted import tilted_site
from bcmdist.model.shared.interface import Shared

SWEEPS = 500
# Convergence: largest move of a site, in standard deviations of its row's belief.
SITE_TOLERANCE = 1e-10
# Relative rounding error of nu, which limits how little sites of large nu can move.
ROUNDING = 1e-14
# Moves that stop shrinking are rounding if they are this small: prior variances of 1e10 times a site's.
STALLED_SWEEPS, STALLED_TOLERANCE = 10, 1e-6
# Factors by which the step is shortened where moves reverse direction, lengthened where not; and its limits.
STEP_SHORTER, STEP_LONGER = 0.5, 1.1
STEP_LEAST, STEP_MOST = 1.0 / 64.0, 1.0
# Where tau times the prior variance is below this, the variance is computed by subtraction from the prior variance.
FAINT = 1e-2


@dataclass(frozen=True)
class Sites:
    """Gaussian sites of n rows: sum of log t = log_constant + nu'f - 1/2 f' tau f."""

    tau: FloatArray
    """Precisions, (n,), >= 0"""
    nu: FloatArray
    """Precisions times means, (n,)"""
    log_constant: float
    """Sum over rows of the log normalisers c, in nats"""
    sweeps: int
    """Number of sweeps until convergence"""


def ep_pass(
    shared: Shared,
    likelihood: OneProcess,
    X: FloatArray,
    obs: Observations,
    total: Message | None = None,
    sites: Sites | None = None,
    *,
    step: float = 1.0,
) -> tuple[Message, Sites]:
    """One pass of one expert: its message about the rows X (n, D), scaled, and the sites for its next pass.

    Without `total` or `sites` this is the first pass, under the expert's own prior. In later passes `total` is the sum
    of all messages including this expert's previous one, which `sites` reproduce. Experts may pass in turn or all at
    once; in parallel a `step` below 1, the share of the way from the old sites to the new, may be needed. The fixed
    point is the same.

    Returns
    -------
    message : Message, sites : Sites

    Raises
    ------
    EPNotConverged, NotPositiveDefinite
    """
    refuse_uncoupled(shared.residual)
    if len(X) == 0:
        return zero(shared.size), Sites(np.zeros(0), np.zeros(0), 0.0, 0)
    V, kind = shared.design(X), kind_of(shared)  # covariances of coupled rows are matrices
    if total is None or sites is None:
        prior_mean, sites = None, None
        prior, Lam = kind.own_prior(shared, V, X)
    else:
        Lam = kind.residual(shared, V, X)
        prior_mean, prior = cavity_prior(V, cast(FloatArray, Lam.covariance), total, site_message(V, Lam, sites))
    fitted = fit_sites(cast(FloatArray, prior), obs, likelihood, prior_mean=prior_mean, start=sites)
    sites = fitted if sites is None else _part_way(sites, fitted, step)
    return site_message(V, Lam, sites), sites


def _part_way(old: Sites, new: Sites, step: float) -> Sites:
    """Sites at the share `step` of the way from old to new: a geometric mean of the two, normaliser included."""
    tau, nu = old.tau + step * (new.tau - old.tau), old.nu + step * (new.nu - old.nu)
    return Sites(tau, nu, old.log_constant + step * (new.log_constant - old.log_constant), new.sweeps)


def repeated_message(shared: Shared, X: FloatArray, sites: Sites) -> Message:
    """Message of existing sites at the rows X (n, D)."""
    V = shared.design(X)
    return site_message(V, kind_of(shared).residual(shared, V, X), sites)


def sites_to_array(sites: Sites) -> FloatArray:
    """Store sites in one matrix (2, n + 1); inverse of `sites_from_array`."""
    ends = np.array([[sites.log_constant], [sites.sweeps]])
    return np.hstack([np.stack([sites.tau, sites.nu]), ends])


def sites_from_array(array: FloatArray) -> Sites:
    """Sites from the matrix of `sites_to_array`."""
    return Sites(array[0, :-1], array[1, :-1], float(array[0, -1]), int(array[1, -1]))


def cavity_prior(V: FloatArray, Lam: FloatArray, total: Message, own: Message) -> tuple[FloatArray, FloatArray]:
    """Mean (n,) and covariance (n, n) of an expert's rows given all other experts.

    With J = I + total - own = L L', and h the difference of the etas: f ~ N(V J^-1 h, Lam + V J^-1 V').
    """
    J = np.asfortranarray(np.eye(len(own.eta)) + (total.precision - own.precision))
    L = linalg.cholesky(J, name="committee precision without one expert")
    C = linalg.solve_lower(L, V.T.copy(order="F"))
    return V @ linalg.cholesky_solve(L, total.eta - own.eta), Lam + linalg.gram(C)


def site_message(V: FloatArray, Lam: Residual, sites: Sites) -> Message:
    """Message of rows with Gaussian sites, given V (n, S) and Lam = cov(f | v), not overwritten (SYSTEMS I.4)."""
    return laplace.site_message(V, Lam, sites.tau, sites.nu, sites.log_constant)


def fit_sites(
    K: FloatArray,
    obs: Observations,
    likelihood: OneProcess,
    *,
    prior_mean: FloatArray | None = None,
    start: Sites | None = None,
) -> Sites:
    """Sites of rows with prior f ~ N(prior_mean, K), by parallel EP.

    The step is shortened where the moves of the sites reverse direction, and lengthened again where they do not.

    Raises
    ------
    EPNotConverged
        Sites still move by more than `SITE_TOLERANCE` standard deviations after `SWEEPS` sweeps.
    """
    prior_mean = np.zeros(len(K)) if prior_mean is None else prior_mean
    tau, nu = (np.zeros(len(K)), np.zeros(len(K))) if start is None else (start.tau, start.nu)
    step, last, best, stalled = STEP_MOST, None, np.inf, 0
    for sweep in range(SWEEPS):
        mean, variance, cavity_mean, cavity_variance = _cavities(K, prior_mean, tau, nu)
        log_z, new_tau, new_nu = tilted_site(likelihood, obs, cavity_mean, cavity_variance)
        sd = np.sqrt(variance)
        move = np.concatenate([(new_tau - tau) * variance, (new_nu - nu - mean * (new_tau - tau)) * sd])
        allowed = SITE_TOLERANCE + ROUNDING * np.tile(sd * (np.abs(nu) + np.abs(mean) * tau), 2)
        gap = np.abs(move).max()
        best, stalled = (gap, 0) if gap < best else (best, stalled + 1)
        if np.all(np.abs(move) <= allowed) or (stalled >= STALLED_SWEEPS and gap <= STALLED_TOLERANCE):
            constant = log_z - _log_average(new_tau, new_nu, cavity_mean, cavity_variance)
            return Sites(new_tau, new_nu, float(constant.sum()), sweep)
        if last is not None:
            step *= STEP_SHORTER if move @ last < 0 else STEP_LONGER
            step = min(max(step, STEP_LEAST), STEP_MOST)
        tau, nu, last = tau + step * (new_tau - tau), nu + step * (new_nu - nu), move
    raise EPNotConverged(
        f"expected sites that move by at most {SITE_TOLERANCE:g} standard deviations, got {gap:.1e} "
        f"after {SWEEPS} sweeps (prior variance up to {np.diag(K).max():.1e}); lower the kernel's variance, "
        "check the targets, or use the Laplace approximation"
    )


def _cavities(
    K: FloatArray, prior_mean: FloatArray, tau: FloatArray, nu: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Mean and variance of each row's belief, and of its cavity; each (n,).

    With B = I + tau^1/2 K tau^1/2, b = diag B^-1 and a = (I + tau K)^-1 (nu - tau prior_mean):
    mean = prior_mean + K a,  variance = (1 - b) / tau,  cavity variance = variance / b,
    cavity mean = mean - cavity variance * a
    No difference of precisions is needed: b = 1 - tau variance is never near rounding (SYSTEMS I.7).
    """
    root = np.sqrt(tau)
    L = linalg.cholesky(linalg.identity_plus_scaled(K, root), name="I + tau^1/2 K tau^1/2")
    a = laplace.regress(Triangular(L), root, K, nu - tau * prior_mean)
    b = np.diag(linalg.inverse(L))
    mean, variance = prior_mean + K @ a, (1.0 - b) / np.where(tau > 0, tau, 1.0)
    faint = tau * np.diag(K) <= FAINT
    C = linalg.solve_lower(L, np.multiply(root[:, None], K[:, faint], order="F"))
    variance[faint] = np.diag(K)[faint] - np.einsum("ij,ij->j", C, C)
    cavity_variance = variance / b
    return mean, variance, mean - cavity_variance * a, cavity_variance


def _log_average(tau: FloatArray, nu: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """log of the average of exp(nu f - 1/2 tau f^2) over f ~ N(mean, variance), (n,)."""
    score, shrink = nu - tau * mean, 1.0 + tau * variance
    return nu * mean - 0.5 * tau * mean**2 + 0.5 * (variance * score**2 / shrink - np.log(shrink))
