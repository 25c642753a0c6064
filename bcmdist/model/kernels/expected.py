"""Expectations of kernels over an uncertain input, x ~ N(u, S) (thesis, section 4.1.1; SYSTEMS T18).

    E k(x, z_i)               = a |I + S|^-1/2 exp(-1/2 d_i' (I + S)^-1 d_i)
    E k(x, z_i) k(x, z_j)     = a^2 |I + 2S|^-1/2 exp(-1/4 |z_i - z_j|^2 - 1/4 e_ij' (I + 2S)^-1 e_ij)
    cov(k(x, z_i), k(x, z_j)) = E k k (1 - exp(q)),   q of the order of S

for the squared exponential, in units of the lengthscales, with d_i = u - z_i and e_ij = d_i + d_j: the thesis's (4.7),
with the distance within a pair separated from the distance of its midpoint from u, so that no exponent is positive.
Covariances are not computed as differences of expectations, which would lose all digits where S is small and functions
are smooth.

Hidden units erf(t_i), t ~ N(m, C), are 2 Phi(z) - 1 of correlated normal variables; in standardised form

    E erf(t_i)               = erf(m_i / w_i),   w_i^2 = 1 + 2 C_ii,   h_i = sqrt(2) m_i / w_i
    cov(erf(t_i), erf(t_j))  = 2/pi int_0^arcsin(r) exp(-(h_i^2 + h_j^2 - 2 h_i h_j sin a) / (2 cos^2 a)) da

with r = 2 C_ij / (w_i w_j): the bivariate normal probability as an integral over its correlation (Plackett 1954;
Drezner and Wesolowsky 1990). The value at correlation 0 (independence) cancels, so again no difference of expectations
is computed.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.special import erf, roots_legendre

# Number of Legendre nodes of that integral, by the largest correlation. Measured: errors of 1e-14 up to .999, where the
# standard deviation of an input is 22 times the width of the units.
UNIT_NODES = {0.9: 16, 0.98: 32, 1.0: 64}


@dataclass(frozen=True)
class Expected:
    """Expectations over x ~ N(u, S) of the covariances with m points z."""

    single: FloatArray
    """E k(x, z_i), (m,)"""
    covariance: FloatArray
    """cov(k(x, z_i), k(x, z_j)), (m, m)"""
    with_inputs: FloatArray
    """cov(k(x, z_i), x), (m, D)"""
    prior: float = math.nan
    """E k(x, x); NaN for functions of a basis"""

    @property
    def pairs(self) -> FloatArray:
        """E k(x, z_i) k(x, z_j), (m, m)"""
        return self.covariance + np.outer(self.single, self.single)


@dataclass(frozen=True)
class Form:
    """A kernel, or a term of one, whose expectations have closed forms.

    Of "bump": `variance exp(-r^2/2)`; of "plane": `variance x' P z`; of "level": `variance`; with r^2 the squared
    distance in the metric P, which is diagonal.
    """

    of: str
    variance: float
    precision: FloatArray
    """diagonal of P, (D,); 0 for inputs without influence"""

    def on(self, columns: Sequence[int], inputs: int) -> "Form":
        """The form on some columns of D inputs."""
        precision = np.zeros(inputs)
        precision[list(columns)] = self.precision
        return Form(self.of, self.variance, precision)


def product_of(parts: Sequence[tuple[Form, ...]], expression: str) -> tuple[Form, ...]:
    """The form of a product of kernels: of bumps and levels a bump, of levels and one plane a plane.

    Raises
    ------
    InvalidOption
        The product has no closed form.
    """
    forms = [form for part in parts for form in part]
    planes = [form for form in forms if form.of == "plane"]
    bumps = [form for form in forms if form.of == "bump"]
    if len(forms) > len(parts) or len(planes) > 1 or (planes and bumps):
        raise InvalidOption(
            f"inputs: expected products of se, or of constant and linear, for exact averages, got {expression}; give "
            "--inputs montecarlo or taylor"
        )
    shaped = planes or bumps or forms[:1]
    variance = math.prod(form.variance for form in forms)
    return (Form(shaped[0].of, variance, np.sum([form.precision for form in shaped], axis=0)),)


def expected_of(forms: Sequence[Form], u: FloatArray, S: FloatArray, Z: FloatArray) -> Expected:
    """Expectations of the sum of forms; covariances between any two of its terms have closed forms too."""
    each = [_expected_form(form, u, S, Z) for form in forms]
    covariance = np.sum([one.covariance for one in each], axis=0)
    for a, b in itertools.combinations(range(len(forms)), 2):
        between = _between(forms[a], forms[b], each[a], each[b], u, S, Z)
        covariance = covariance + between + between.T
    single, with_inputs = (np.sum([getattr(one, n) for one in each], axis=0) for n in ("single", "with_inputs"))
    return Expected(single, covariance, with_inputs, math.fsum(one.prior for one in each))


def _expected_form(form: Form, u: FloatArray, S: FloatArray, Z: FloatArray) -> Expected:
    if form.of == "level":
        m, D = Z.shape
        return Expected(np.full(m, form.variance), np.zeros((m, m)), np.zeros((m, D)), form.variance)
    with np.errstate(divide="ignore"):
        lengthscale = 1.0 / np.sqrt(form.precision)
    if form.of == "bump":
        return expected_bumps(u, S, Z, form.variance, lengthscale)
    return expected_products(u, S, Z, lengthscale / np.sqrt(form.variance))


def _between(
    a: Form, b: Form, expected_a: Expected, expected_b: Expected, u: FloatArray, S: FloatArray, Z: FloatArray
) -> FloatArray:
    """cov(k_a(x, z_i), k_b(x, z_j)) of two terms, (m, m)."""
    if "level" in (a.of, b.of):
        return np.zeros((len(Z), len(Z)))
    if b.of == "plane":  # k_b is linear in x
        return expected_a.with_inputs @ (b.variance * b.precision * Z).T
    if a.of == "plane":
        return (a.variance * a.precision * Z) @ expected_b.with_inputs.T
    return _between_bumps(a.precision, b.precision, expected_a.single, expected_b.single, u, S, Z)


def _between_bumps(
    Pa: FloatArray,
    Pb: FloatArray,
    single_a: FloatArray,
    single_b: FloatArray,
    u: FloatArray,
    S: FloatArray,
    Z: FloatArray,
) -> FloatArray:
    """As `_between` for two bumps: E k_a E k_b expm1(q), with q = log E k_a k_b - log E k_a - log E k_b.

    These are integrals of Gaussians: with M(P) = S (I + P S)^-1, a_i = P_a (u - z_i), b_j = P_b (u - z_j), q is half of

        log |I + P_a S| + log |I + P_b S| - log |I + (P_a + P_b) S|
            + a_i' (M(P_a + P_b) - M(P_a)) a_i + b_j' (M(P_a + P_b) - M(P_b)) b_j + 2 a_i' M(P_a + P_b) b_j
    """
    (Ma, log_a), (Mb, log_b), (M, log_ab) = (_tilted(S, P) for P in (Pa, Pb, Pa + Pb))
    A, B = Pa * (u - Z), Pb * (u - Z)
    of_a, of_b = np.einsum("id,de,ie->i", A, M - Ma, A), np.einsum("id,de,ie->i", B, M - Mb, B)
    q: FloatArray = 0.5 * (log_a + log_b - log_ab + of_a[:, None] + of_b) + A @ M @ B.T
    with np.errstate(divide="ignore"):
        logs = np.log(single_a)[:, None] + np.log(single_b)
    # Neither factor overflows: the larger of E k_a k_b and E k_a E k_b is multiplied by at most 1.
    return np.where(q > 0.0, -np.exp(logs + q) * np.expm1(-np.abs(q)), np.exp(logs) * np.expm1(np.minimum(q, 0.0)))


def _tilted(S: FloatArray, P: FloatArray) -> tuple[FloatArray, float]:
    """S (I + P S)^-1, (D, D), and log |I + P S|, for a diagonal P (D,)."""
    root = np.sqrt(P)
    widths = np.maximum(np.linalg.eigvalsh(S * np.outer(root, root)), 0.0)
    M = cast(FloatArray, np.linalg.solve(np.eye(len(P)) + S * P, S))
    return M, np.log1p(widths).sum()


def expected_bumps(u: FloatArray, S: FloatArray, Z: FloatArray, variance: float, lengthscale: FloatArray) -> Expected:
    """Expectations of `variance exp(-r^2/2)`, for u (D,), S (D, D), Z (m, D) and lengthscales (D,) or (1,).

    Inputs without influence have infinite lengthscales.
    """
    D = len(u)
    root = 1.0 / np.broadcast_to(lengthscale, D)
    d, T = (u - Z) * root, S * np.outer(root, root)
    once = linalg.cholesky(np.asfortranarray(np.eye(D) + T), name="I + S of an uncertain input")
    twice = linalg.cholesky(np.asfortranarray(np.eye(D) + 2.0 * T), name="I + 2 S of an uncertain input")
    e = linalg.solve_lower(once, d.T.copy(order="F"))
    widths = np.maximum(np.linalg.eigvalsh(T), 0.0)
    log_once, log_twice = np.log1p(widths).sum(), np.log1p(2.0 * widths).sum()
    single = variance * np.exp(-0.5 * (np.einsum("ij,ij->j", e, e) + log_once))
    h = linalg.solve_lower(twice, d.T.copy(order="F")).T
    pairs = variance**2 * np.exp(-0.25 * (_squared(d, d) + _squared(h, -h)) - 0.5 * log_twice)
    # q = log E k_i + log E k_j - log E k_i k_j, where (I + S)^-1 = I - S (I + S)^-1 leaves terms of the order of S
    A, B = (linalg.cholesky_solve(L, np.asfortranarray(c * T @ d.T)).T for L, c in ((once, 1.0), (twice, 2.0)))
    own = 0.5 * np.einsum("ij,ij->i", d, A) - 0.25 * np.einsum("ij,ij->i", d, B)
    q = own[:, None] + own - 0.5 * d @ B.T + (0.5 * log_twice - log_once)
    return Expected(single, -pairs * np.expm1(q), -single[:, None] * (((d - A) * root) @ S), float(variance))


def expected_products(u: FloatArray, S: FloatArray, Z: FloatArray, lengthscale: FloatArray) -> Expected:
    """Expectations of `sum_d x_d z_d / lengthscale_d^2`, a linear function of x."""
    scaled = Z / lengthscale**2
    single, slopes = scaled @ u, scaled @ S
    prior = float(u / lengthscale**2 @ u + np.trace(S / lengthscale**2))
    return Expected(single, slopes @ scaled.T, slopes, prior)


def expected_units(u: FloatArray, S: FloatArray, inner: FloatArray) -> Expected:
    """Expectations of `erf(w_0 + w'x)`, for inner weights (m, 1 + D)."""
    slopes = inner[:, 1:] @ S
    covariance = slopes @ inner[:, 1:].T
    width = np.sqrt(1.0 + 2.0 * covariance.diagonal())
    center = (inner[:, 0] + inner[:, 1:] @ u) / width
    steepness = 2.0 / np.sqrt(np.pi) * np.exp(-(center**2)) / width
    correlation = np.clip(2.0 * covariance / np.outer(width, width), -1.0, 1.0)
    return Expected(erf(center), _between_units(np.sqrt(2.0) * center, correlation), steepness[:, None] * slopes)


def _between_units(h: FloatArray, correlation: FloatArray) -> FloatArray:
    """cov(2 Phi - 1, 2 Phi - 1) for latent means h (m,) and correlations (m, m)."""
    reach, largest = np.arcsin(correlation), np.abs(correlation).max()
    nodes, weights = roots_legendre(next(count for upto, count in UNIT_NODES.items() if largest <= upto))
    squares, products = 0.5 * (h[:, None] ** 2 + h**2), np.outer(h, h)
    found = np.zeros_like(reach)
    for node, weight in zip(nodes, weights, strict=True):
        sine = np.sin(0.5 * (1.0 + node) * reach)
        found += weight * np.exp((products * sine - squares) / (1.0 - sine**2))
    return found * reach / np.pi


def _squared(A: FloatArray, B: FloatArray) -> FloatArray:
    """Squared distances between rows, (m, m), from differences of squares, with errors relative to |a|^2."""
    of_a, of_b = np.einsum("ij,ij->i", A, A), np.einsum("ij,ij->i", B, B)
    squares: FloatArray = np.maximum(of_a[:, None] + of_b - 2.0 * A @ B.T, 0.0)
    return squares
