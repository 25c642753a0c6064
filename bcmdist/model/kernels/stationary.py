"""Stationary kernels of the distance of two inputs: squared exponential, Matern, rational quadratic."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels.expected import Form
from bcmdist.model.kernels.interface import Leaf, Pullback, per_lengthscale
from bcmdist.model.special import gammaincinv, gammaln

# Squared distances below this share of the largest squared norm are recomputed from differences: the matrix product
# gives them with a relative error above 1e-12.
CANCELLATION_SHARE = 1e-3


def squared_distance(X: FloatArray, Z: FloatArray, lengthscale: FloatArray | float) -> FloatArray:
    """Squared distances of inputs divided by `lengthscale`, (n, m), Fortran-ordered.

    One matrix product of augmented inputs, `[-2x, |x|^2, 1] [z, 1, |z|^2]'`, centred at the mean of Z. Entries that
    lose too many digits are recomputed from differences, so that coincident points have distance exactly 0. For a
    single row, or a single input, everything is computed from differences, in a third of the time.
    """
    if X.shape[1] == 1:
        along: FloatArray = np.subtract.outer(Z[:, 0] / lengthscale, X[:, 0] / lengthscale)
        return np.square(along, out=along).T
    if min(len(X), len(Z)) == 1:
        difference = (X - Z) / lengthscale
        single: FloatArray = np.einsum("ij,ij->i", difference, difference)
        return single.reshape(len(X), len(Z))
    centre = Z.mean(axis=0) if len(Z) else 0.0
    Xs, Zs = (X - centre) / lengthscale, (Z - centre) / lengthscale
    x2, z2 = np.einsum("ij,ij->i", Xs, Xs), np.einsum("ij,ij->i", Zs, Zs)
    left = np.column_stack([-2.0 * Xs, x2, np.ones_like(x2)])
    right = np.column_stack([Zs, np.ones_like(z2), z2])
    r2: FloatArray = right @ left.T
    small = np.flatnonzero(r2.ravel() < CANCELLATION_SHARE * (x2.max(initial=0) + z2.max(initial=0)))
    j, i = np.divmod(small, len(X))
    exact = np.zeros(len(small))
    for d in range(X.shape[1]):
        exact += (Xs[i, d] - Zs[j, d]) ** 2
    r2.ravel()[small] = exact
    return r2.T


def lengthscale_pullback(X: FloatArray, Z: FloatArray, H: FloatArray, lengthscale: FloatArray) -> FloatArray:
    """Sums of `H_ij (x_id - z_jd)^2 / lengthscale_d^2` over i, j: one entry per lengthscale."""
    Xs, Zs = X / lengthscale, Z / lengthscale
    per_input = H.sum(axis=1) @ Xs**2 + H.sum(axis=0) @ Zs**2 - 2.0 * (Xs * (H @ Zs)).sum(axis=0)
    return per_lengthscale(per_input, lengthscale)


def distance_gradient(X: FloatArray, Z: FloatArray, H: FloatArray, lengthscale: FloatArray | float) -> FloatArray:
    """Gradient in Z of the sum of `H_ij r_ij^2`: the terms of entry j, d are 2 H_ij (z_jd - x_id) / l_d^2."""
    total: FloatArray = H.sum(axis=0)
    return 2.0 * (total[:, None] * Z - H.T @ X) / lengthscale**2


def _stretched(W: FloatArray, variance: FloatArray, lengthscale: FloatArray) -> tuple[FloatArray, FloatArray]:
    """|lengthscale w|^2 at frequencies W (n, D), (n,), and the factor of a unit density."""
    lengths = np.broadcast_to(lengthscale, W.shape[1])
    return np.einsum("ij,ij->i", W * lengths, W * lengths), variance * float(np.prod(lengths))


def matern_density(W: FloatArray, variance: FloatArray, lengthscale: FloatArray, nu: float) -> FloatArray:
    """Spectral density of a Matern kernel (Rasmussen & Williams 2006, eq. 4.15) at frequencies W (n, D): (n,)."""
    s2, unit = _stretched(W, variance, lengthscale)
    half = 0.5 * int(W.shape[1])
    power = nu + half
    factor: float = (4.0 * np.pi) ** half * np.exp(gammaln(power) - gammaln(nu)) * (2.0 * nu) ** nu
    return unit * factor * (2.0 * nu + 4.0 * np.pi**2 * s2) ** -power


def strata(rng: np.random.Generator, count: int) -> FloatArray:
    """One random number in each of `count` equal parts of (0, 1), in random order, (count,): uniform, each of them, but
    never far from evenly spread together."""
    numbers: FloatArray = (rng.permutation(count) + rng.uniform(size=count)) / count
    return numbers


def normal_frequencies(
    rng: np.random.Generator, count: int, inputs: int, lengthscale: FloatArray, shrink: FloatArray | float = 1.0
) -> FloatArray:
    """Frequencies of squared exponentials with lengthscales `lengthscale * shrink`, (count, inputs)."""
    widths: FloatArray = np.reshape(shrink, (-1, 1))
    return rng.standard_normal((count, inputs)) / lengthscale / widths


def matern_frequencies(
    rng: np.random.Generator, count: int, inputs: int, lengthscale: FloatArray, nu: float
) -> FloatArray:
    """Frequencies of a Matern kernel: a multivariate t with 2 nu degrees of freedom (R & W 2006, eq. 4.15)."""
    chi2 = 2.0 * gammaincinv(nu, strata(rng, count))
    return normal_frequencies(rng, count, inputs, lengthscale, np.sqrt(chi2 / (2.0 * nu)))


def _decay(a: FloatArray) -> FloatArray:
    """Return exp(-a) in a new array."""
    found = np.negative(a)
    return np.exp(found, out=found)


@dataclass(frozen=True)
class Stationary(Leaf):
    """`variance * profile(r^2)` with `r^2 = sum_d (x_d - z_d)^2 / lengthscale_d^2`."""

    variance: FloatArray
    lengthscale: FloatArray

    @staticmethod
    @abstractmethod
    def profile(r2: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        """Values at squared distances r2, and a function that returns their derivatives in r2; overwrites r2.

        Where r2 = 0 the derivative may be 0 instead of infinite, since it is multiplied by r2.
        """

    def metric(self, inputs: int) -> FloatArray:
        return np.broadcast_to(self.lengthscale, inputs)

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        K, _ = self.profile(squared_distance(X, Z, self.lengthscale))
        K *= self.variance
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        value, slope = self.profile(squared_distance(X, Z, self.lengthscale))
        K = self.variance * value

        def pullback(G: FloatArray) -> FloatArray:
            H = slope()
            H *= G
            lengthscale = lengthscale_pullback(X, Z, H, self.lengthscale)
            return np.concatenate([[np.vdot(G.T, K.T)], -2.0 * self.variance * lengthscale])

        return K, pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        _, slope = self.profile(squared_distance(X, Z, self.lengthscale))
        return distance_gradient(X, Z, self.variance * slope() * G, self.lengthscale)


class SquaredExponential(Stationary):
    """`exp(-r^2/2)`: the kernel of the GBCM paper (eq. 9), whose A is the variance and gamma the lengthscale."""

    name = "se"

    @staticmethod
    def profile(r2: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        r2 *= -0.5
        value = np.exp(r2, out=r2)
        return value, lambda: -0.5 * value

    def forms(self, inputs: int) -> tuple[Form, ...]:
        return (Form("bump", float(self.variance[0]), np.broadcast_to(self.lengthscale**-2.0, inputs)),)

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return normal_frequencies(rng, count, inputs, self.lengthscale)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        """(Rasmussen & Williams 2006, page 83)"""
        s2, unit = _stretched(W, self.variance, self.lengthscale)
        factor: float = (2.0 * np.pi) ** (0.5 * W.shape[1])
        return unit * factor * np.exp(-2.0 * np.pi**2 * s2)


class Matern12(Stationary):
    """`exp(-r)`."""

    name = "matern12"

    @staticmethod
    def profile(r2: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        r = np.sqrt(r2, out=r2)
        value = _decay(r)
        return value, lambda: np.divide(-0.5 * value, r, out=np.zeros_like(r), where=r > 0)

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return matern_frequencies(rng, count, inputs, self.lengthscale, 0.5)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        return matern_density(W, self.variance, self.lengthscale, 0.5)


class Matern32(Stationary):
    """`(1 + a) exp(-a)` with a = sqrt(3) r (Rasmussen & Williams 2006, eq. 4.17)."""

    name = "matern32"

    @staticmethod
    def profile(r2: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        r2 *= 3.0
        value = np.sqrt(r2, out=r2)
        decay = _decay(value)
        value += 1.0
        value *= decay
        return value, lambda: -1.5 * decay

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return matern_frequencies(rng, count, inputs, self.lengthscale, 1.5)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        return matern_density(W, self.variance, self.lengthscale, 1.5)


class Matern52(Stationary):
    """`(1 + a + a^2/3) exp(-a)` with a = sqrt(5) r (Rasmussen & Williams 2006, eq. 4.17)."""

    name = "matern52"

    @staticmethod
    def profile(r2: FloatArray) -> tuple[FloatArray, Callable[[], FloatArray]]:
        r2 *= 5.0
        a = np.sqrt(r2, out=r2)
        decay = _decay(a)
        value = a / 3.0
        for factor in (a, decay):
            value += 1.0
            value *= factor
        return value, lambda: (-5.0 / 6.0) * (1.0 + a) * decay

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        return matern_frequencies(rng, count, inputs, self.lengthscale, 2.5)

    def spectral_density(self, W: FloatArray) -> FloatArray:
        return matern_density(W, self.variance, self.lengthscale, 2.5)


@dataclass(frozen=True)
class RationalQuadratic(Leaf):
    """`variance * (1 + r^2 / (2 alpha))^-alpha` (Rasmussen & Williams 2006, eq. 4.19)."""

    variance: FloatArray
    alpha: FloatArray
    lengthscale: FloatArray
    name = "rq"
    bounds = Leaf.bounds | {"alpha": (1e-2, 1e3)}

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        return super().defaults(inputs) | {"alpha": np.ones(1)}

    def metric(self, inputs: int) -> FloatArray:
        return np.broadcast_to(self.lengthscale, inputs)

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        K = squared_distance(X, Z, self.lengthscale)
        K /= 2.0 * self.alpha
        np.log1p(K, out=K)
        K *= -self.alpha
        np.exp(K, out=K)
        K *= self.variance
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        u = squared_distance(X, Z, self.lengthscale) / (2.0 * self.alpha)
        K = self.variance * np.exp(-self.alpha * np.log1p(u))

        def pullback(G: FloatArray) -> FloatArray:
            GK = G * K
            alpha = self.alpha * np.vdot(GK.T, (u / (1.0 + u) - np.log1p(u)).T)
            lengthscale = lengthscale_pullback(X, Z, GK / (1.0 + u), self.lengthscale)
            return np.concatenate([[GK.sum()], alpha, lengthscale])

        return K, pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        u = squared_distance(X, Z, self.lengthscale) / (2.0 * self.alpha)
        slope = -0.5 * self.variance * np.exp(-(self.alpha + 1.0) * np.log1p(u))
        return distance_gradient(X, Z, slope * G, self.lengthscale)

    def random_frequencies(self, rng: np.random.Generator, count: int, inputs: int) -> FloatArray:
        """A mixture of squared exponentials whose inverse squared lengthscales are gamma variables."""
        rates = gammaincinv(self.alpha[0], strata(rng, count)) / self.alpha[0]
        return normal_frequencies(rng, count, inputs, self.lengthscale, 1.0 / np.sqrt(rates))
