"""The kernel of a neural network with infinitely many hidden units; it is not a function of distances."""

from dataclasses import dataclass

import numpy as np

from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels.basis import inner_products
from bcmdist.model.kernels.interface import Leaf, Pullback, per_lengthscale


@dataclass(frozen=True)
class Arcsine(Leaf):
    """`variance * arcsin(2 s(x, z) / sqrt((1 + 2 s(x, x)) (1 + 2 s(z, z))))`: hidden units erf(u_0 + u'x).

    With s(x, z) = 1 / bias^2 + sum_d x_d z_d / lengthscale_d^2, the hidden units' weights are u_0 ~ N(0, 1 / bias^2)
    and u_d ~ N(0, 1 / lengthscale_d^2) (Williams 1997; Lazaro-Gredilla & Figueiras-Vidal, eq. 5, where squares of
    inputs lack their transposes: SYSTEMS N2). Far from the centre of the inputs the kernel depends on directions only.
    """

    variance: FloatArray
    bias: FloatArray
    lengthscale: FloatArray
    name = "arcsine"
    bounds = Leaf.bounds | {"bias": (1e-2, 1e3)}

    @classmethod
    def defaults(cls, inputs: int) -> dict[str, FloatArray]:
        """Default parameters; bias^2 is the sum of the squared lengthscales, within bounds."""
        defaults = super().defaults(inputs)
        return defaults | {"bias": np.sqrt((defaults["lengthscale"] ** 2).sum(keepdims=True)).clip(*cls.bounds["bias"])}

    def metric(self, inputs: int) -> FloatArray:
        return np.broadcast_to(self.lengthscale, inputs)

    def cross(self, X: FloatArray, Z: FloatArray) -> FloatArray:
        K, _ = self._sines(X, Z)
        np.arcsin(K, out=K)
        K *= self.variance
        return K

    def diagonal(self, X: FloatArray) -> FloatArray:
        inner = self._inner(X)
        return self.variance * np.arcsin(2.0 * inner / (1.0 + 2.0 * inner))

    def cross_and_pullback(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, Pullback]:
        sines, roots = self._sines(X, Z)
        K = self.variance * np.arcsin(sines)

        def pullback(G: FloatArray) -> FloatArray:
            to_inner, to_x, to_z = self._adjoints(X, Z, sines, roots, G)
            Xs, Zs = X / self.lengthscale, Z / self.lengthscale
            per_input = (Xs * (to_inner @ Zs)).sum(axis=0) + to_x @ Xs**2 + to_z @ Zs**2
            bias = (to_inner.sum() + to_x.sum() + to_z.sum()) / self.bias**2
            lengthscale = per_lengthscale(per_input, self.lengthscale)
            return np.concatenate([[np.vdot(G.T, K.T)], -2.0 * bias, -2.0 * lengthscale])

        return K, pullback

    def input_gradient(self, X: FloatArray, Z: FloatArray, G: FloatArray) -> FloatArray:
        sines, roots = self._sines(X, Z)
        to_inner, _, to_z = self._adjoints(X, Z, sines, roots, G)
        return (to_inner.T @ X + 2.0 * to_z[:, None] * Z) / self.lengthscale**2

    def _inner(self, X: FloatArray) -> FloatArray:
        """Return s(x, x) for each row, (n,)."""
        squares: FloatArray = ((X / self.lengthscale) ** 2).sum(axis=1)
        return self.bias**-2 + squares

    def _sines(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The argument of the arcsine and the square root in its denominator, (n, m) each."""
        of_x, of_z = 1.0 + 2.0 * self._inner(X), 1.0 + 2.0 * self._inner(Z)
        roots = np.sqrt(np.outer(of_z, of_x)).T
        sines = inner_products(X, Z, self.lengthscale)
        sines += self.bias**-2
        sines *= 2.0
        sines /= roots
        return np.clip(sines, -1.0, 1.0, out=sines), roots  # only rounding exceeds these limits

    def _adjoints(
        self, X: FloatArray, Z: FloatArray, sines: FloatArray, roots: FloatArray, G: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Derivatives of the sum of `G_ij k_ij` in s(x_i, z_j), s(x_i, x_i) and s(z_j, z_j)."""
        slopes = np.sqrt((1.0 - sines) * (1.0 + sines))
        H = np.divide(self.variance * G, slopes, out=np.zeros_like(slopes), where=slopes > 0)
        turned = H * sines
        of_x, of_z = 1.0 + 2.0 * self._inner(X), 1.0 + 2.0 * self._inner(Z)
        return 2.0 * H / roots, -turned.sum(axis=1) / of_x, -turned.sum(axis=0) / of_z
