"""Conformance of kernels and likelihoods: values, and derivatives against finite differences."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.testing.checked import ROUNDING, SEED, STEP, TOLERANCE, Checked, seeded, slope

LARGEST = 300.0  # latent value that acts as infinity
FAR = 30.0  # latent values that scaled data do not have, but that a mode search may try
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles at which targets are drawn


def check_kernel(
    kernel: Any,
    X: np.ndarray | None = None,
    Z: np.ndarray | None = None,
    *,
    tolerance: float = TOLERANCE,
    rounding: float = ROUNDING,
) -> None:
    """Check a `Kernel`: values, symmetry, positive semi-definiteness, and derivatives against finite differences.

    Parameters
    ----------
    kernel : an instance, at parameters other than 1 (at 1 a derivative in a parameter equals that in its logarithm)
    X, Z : scaled inputs (n, D) and (m, D); by default seeded ones, with two points in common
    tolerance, rounding : relative, of derivatives and of values

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.model.kernels import Matern32
    >>> from bcmdist.testing import check_kernel
    >>> check_kernel(Matern32(1.4, [0.7, 1.3]))
    """
    checked = Checked(f"kernel {kernel.expression}", type(kernel).__name__, tolerance, rounding)
    X = seeded(6, max(len(value) for value in kernel.parameters.values())) if X is None else X
    Z = np.vstack([X[:2], 0.8 * seeded(3, X.shape[1])]) if Z is None else Z
    K = kernel.cross(X, X)
    checked.equal("`cross(X, X)` and its transpose", K, K.T)
    checked.holds(K.flags.f_contiguous, "`cross`", "a Fortran-ordered matrix", "another", "return np.asfortranarray(K)")
    checked.equal("`diagonal`", kernel.diagonal(X), np.diag(K))
    checked.not_negative("eigenvalues of `cross(X, X)`", np.linalg.eigvalsh(K), 1e-10 * K.trace())
    checked.equal("`with_theta(theta)`", kernel.with_theta(kernel.theta).theta, kernel.theta)
    shape = kernel.isotropic().cross(X, Z).shape
    checked.holds(shape == (len(X), len(Z)), "`isotropic`", f"covariances {(len(X), len(Z))}", shape)
    G = np.random.default_rng(SEED + 1).standard_normal((len(X), len(Z)))
    K, pullback = kernel.cross_and_pullback(X, Z)
    checked.equal("value of `cross_and_pullback`", K, kernel.cross(X, Z))
    names = [f"{name}[{k}]" for name, found in kernel.parameters.items() for k in range(len(found))]
    numeric = slope(lambda theta: (G * kernel.with_theta(theta).cross(X, Z)).sum(), kernel.theta)
    checked.derivative("derivative in the logarithm of a parameter", pullback(G), numeric, "cross", names=names)
    numeric = slope(lambda z: (G * kernel.cross(X, z.reshape(Z.shape))).sum(), Z.ravel()).reshape(Z.shape)
    checked.derivative("derivative by `input_gradient`", kernel.input_gradient(X, Z, G), numeric, "cross")


def check_likelihood(
    likelihood: Any,
    obs: Observations | None = None,
    f: np.ndarray | None = None,
    *,
    tolerance: float = TOLERANCE,
    rounding: float = ROUNDING,
) -> None:
    """Check a `Likelihood`: derivatives of its log density, its support, its distribution, weights and bounds.

    Parameters
    ----------
    likelihood : an instance
    obs, f : observations (n,) and their latent values, (n,), or (n, C) if `per_class`; by default seeded latent values,
        with targets at quantiles of its `distribution`, or classes
    tolerance, rounding : relative, of derivatives and of values

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.model.likelihoods import StudentT
    >>> from bcmdist.testing import check_likelihood
    >>> check_likelihood(StudentT(0.3, 3.5))
    """
    checked = Checked(f"likelihood {likelihood.name}", type(likelihood).__name__, tolerance, rounding)
    f = seeded(len(LEVELS), *[likelihood.processes] * likelihood.per_class) if f is None else f
    obs = _observations(likelihood, f) if obs is None else obs
    checked.holds(not likelihood.unsupported(obs).any(), "`unsupported` of its own targets", "False", "True")
    for name, (low, high) in likelihood.bounds.items():
        value = likelihood.parameters[name]
        checked.holds(np.all((low <= value) & (value <= high)), f"{name}", f"a value within {low}..{high}", value)
    numeric = _slope_of_rows(likelihood.log_density, obs, f)
    checked.derivative("`score`", likelihood.score(obs, f), numeric, "log_density")
    checked.not_negative("`curvature`", likelihood.curvature(obs, f))
    for name in ("log_density", "score", "curvature"):
        method = getattr(likelihood, name)
        finite = all(np.all(np.isfinite(method(obs, far + 0 * f))) for far in (FAR, -FAR))
        checked.holds(finite, f"`{name}` at latents of +-{FAR:g}", "finite numbers", "others", "bound its exponents")
        if not likelihood.exact:
            thrice = replace(obs, weight=3.0 * obs.weight)
            remedy = f"multiply it by `obs.weight` in {checked.owner}"
            checked.equal(f"`{name}` of a row of weight 3", method(thrice, f), 3.0 * method(obs, f), remedy)
    if not likelihood.per_class:
        _check_one_process(checked, likelihood, obs, f)


def _observations(likelihood: Any, f: np.ndarray) -> Observations:
    """Return targets at quantiles of its own distribution, or all classes in turn; companions take several values."""
    n = len(f)
    weight, exposure, trials = np.linspace(0.5, 2.0, n), np.linspace(1.0, 3.0, n), np.arange(n, dtype=float) + 2.0
    if likelihood.per_class:
        return Observations(np.arange(n) % likelihood.processes * 1.0, weight)
    event = (np.arange(n) % 3 != 1) * 1.0 if "event" in likelihood.companions else np.ones(n)
    one_each = Observations(np.zeros(n), np.ones(n), exposure, trials)
    y = likelihood.distribution(one_each, f).ppf(np.resize(LEVELS, n))
    return Observations(np.asarray(y, dtype=float), weight, exposure, trials, event)


def _slope_of_rows(method: Callable[[Observations, np.ndarray], Any], obs: Observations, f: np.ndarray) -> Any:
    """Return central differences of a row-wise function in its latent values, of the shape of f."""
    if f.ndim == 1:
        return (method(obs, f + STEP) - method(obs, f - STEP)) / (2 * STEP)
    return np.column_stack([(method(obs, f + h) - method(obs, f - h)) / (2 * STEP) for h in STEP * np.eye(f.shape[1])])


def _check_one_process(checked: Checked, likelihood: Any, obs: Observations, f: np.ndarray) -> None:
    checked.derivative("`hessian`", likelihood.hessian(obs, f), -_slope_of_rows(likelihood.score, obs, f), "score")
    checked.derivative("`third`", likelihood.third(obs, f), -_slope_of_rows(likelihood.curvature, obs, f), "curvature")
    for name in ("log_density", "score", "curvature", "third", "hessian"):
        method = getattr(likelihood, name)
        table = np.asarray(method(obs[:, None], f[:, None] + np.array([0.0, 0.1])))
        checked.equal(f"`{name}` at latents (n, 2), first column", table[..., 0], method(obs, f))
    share = likelihood.distribution(obs, f[:, None] + np.array([0.0, 0.5])).cdf(obs.y[:, None])
    checked.equal("`distribution` at latents (n, 2)", share[:, 0], likelihood.distribution(obs, f).cdf(obs.y))
    checked.not_negative("fall of the cdf of `distribution` as f grows", share[:, 0] - share[:, 1])
    top = likelihood.saturated(obs)
    checked.holds(np.all(np.abs(top) <= LARGEST), "`saturated`", f"numbers within +-{LARGEST:g}", top)
    for other in (top - 1e-3, top + 1e-3, f):
        gain = np.max(likelihood.log_density(obs, other) - likelihood.log_density(obs, top))
        checked.holds(gain <= 1e-9, "`saturated`", "the largest log density", f"{gain:.3g} less than at another f")
    if likelihood.needs_calibration:  # such a likelihood has no density
        return
    if likelihood.log_concave:
        remedy = f"set `log_concave = False` in {checked.owner} where it is an expectation"
        checked.equal(
            "`curvature`, against `hessian`", likelihood.curvature(obs, f), likelihood.hessian(obs, f), remedy
        )
    if not likelihood.exact:
        predicted = likelihood.distribution(obs, f)
        density = predicted.logpmf(obs.y) if likelihood.discrete else predicted.logpdf(obs.y)
        if "event" in likelihood.companions:
            density = np.where(obs.event == 1, density, predicted.logsf(obs.y))
        what, found = "`log_density`, against that of `distribution`", likelihood.log_density(obs, f) / obs.weight
        checked.equal(what, found, density, rtol=max(1e-11, checked.rounding))
