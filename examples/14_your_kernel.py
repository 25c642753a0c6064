"""A kernel of your own: periodic functions, with the period as a parameter that is learned.

One class with covariances and their derivatives, and `register_kernel`, which checks them against finite differences: a
wrong derivative is refused there, by name. It can then be used in sums and products.
"""

import sys
from dataclasses import dataclass

import numpy as np

from bcmdist import GBCM, Settings, register_kernel
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import Leaf
from bcmdist.testing import check_kernel


@register_kernel
@dataclass(frozen=True)
class Periodic(Leaf):
    """`variance * exp(-2 sum_d sin^2(pi (x_d - z_d) / period) / lengthscale_d^2)`."""

    variance: np.ndarray
    lengthscale: np.ndarray
    period: np.ndarray
    name = "cyclic"
    bounds = Leaf.bounds | {"period": (0.1, 10.0)}

    @classmethod
    def defaults(cls, inputs):
        return super().defaults(inputs) | {"period": np.ones(1)}

    def metric(self, inputs):
        """Near 0 it is a squared exponential of these lengthscales."""
        return np.broadcast_to(self.lengthscale * self.period / (2.0 * np.pi), inputs)

    def phase(self, X, Z):
        return np.pi * (X[:, None] - Z) / self.period

    def cross(self, X, Z):
        sines = np.sin(self.phase(X, Z)) / self.lengthscale
        return np.asfortranarray(self.variance * np.exp(-2.0 * (sines**2).sum(axis=2)))

    def diagonal(self, X):
        return np.full(len(X), self.variance[0])

    def cross_and_pullback(self, X, Z):
        K, phase = self.cross(X, Z), self.phase(X, Z)

        def pullback(G):
            """Derivatives in the logarithms of variance, lengthscales and period."""
            GK = G * K
            lengths = np.einsum("ij,ijd->d", GK, 4.0 * (np.sin(phase) / self.lengthscale) ** 2)
            if len(self.lengthscale) == 1:
                lengths = lengths.sum(keepdims=True)
            period = np.einsum("ij,ijd->", GK, 2.0 * phase * np.sin(2.0 * phase) / self.lengthscale**2)
            return np.concatenate([[GK.sum()], lengths, [period]])

        return K, pullback

    def input_gradient(self, X, Z, G):
        slope = 2.0 * np.sin(2.0 * self.phase(X, Z)) * np.pi / self.period / self.lengthscale**2
        return np.einsum("ij,ijd->jd", G * self.cross(X, Z), slope)


class Forgetful(Periodic):
    """The same, without the derivative in its period."""

    name = "forgetful"

    def cross_and_pullback(self, X, Z):
        K, pullback = super().cross_and_pullback(X, Z)
        return K, lambda G: np.append(pullback(G)[:-1], 0.0)


def main(rows):
    check_kernel(Periodic([1.4], [0.7, 1.3], [2.0]))  # at inputs and parameters that matter to you
    try:
        register_kernel(Forgetful)
    except InvalidOption as error:
        print("refused:", error)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 9.0, rows)
    y = 2.0 * np.sin(2.0 * np.pi * x / 3.0) + 0.3 * rng.standard_normal(rows)
    gbcm = GBCM.fit((x[:, None], y), Settings(kernel="cyclic", query=60, effort="quick"))
    period = gbcm.model.query.kernel.period[0] * gbcm.model.scaling.x_scale[0]
    print(f"period {period:.3f}, in truth 3; its multiples explain the rows as well")
    new = np.linspace(9.0, 15.0, 50)  # beyond the data
    error = gbcm.predict(new[:, None])["mean"] - 2.0 * np.sin(2.0 * np.pi * new / 3.0)
    print(f"root mean squared error two periods beyond the data: {np.sqrt(np.mean(error**2)):.3f}")


if __name__ == "__main__":
    main(300 if "--quick" in sys.argv else 3000)
