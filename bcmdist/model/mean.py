"""The prior mean: zero, a constant, or a linear trend, with a vague prior on its weights.

f(x) = g(x) + h(x)' w, with g the zero-mean process of the kernel and w ~ N(0, I). All partitions share the weights w,
like the whitened query values, so w is appended to the shared variables and the algebra of messages does not change
(SYSTEMS I.9).
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.errors import InvalidOption

# Prior standard deviation of each weight, in units of the scaled target (or of the latent f) per
# standard deviation of an input. Vague on that scale; arbitrary.
WEIGHT_SD = 5.0

MEAN_NAMES = ("zero", "constant", "linear")


@dataclass(frozen=True)
class Mean:
    """Basis of the prior mean: `zero` (no weights), `constant` (1 weight), `linear` (1 + D weights)."""

    name: str

    def __post_init__(self):
        if self.name not in MEAN_NAMES:
            raise InvalidOption(
                f"mean: expected one of {', '.join(MEAN_NAMES)}, got {self.name!r}; give one of these names"
            )

    def weights(self, inputs) -> int:
        """Number P of shared weights for D inputs."""
        return {"zero": 0, "constant": 1, "linear": 1 + inputs}[self.name]

    def design(self, X) -> np.ndarray:
        """Basis at the rows of X times the prior standard deviation: (n, D) -> (n, P)."""
        columns = np.column_stack([np.ones(len(X)), X]) if self.name == "linear" else np.ones((len(X), 1))
        return WEIGHT_SD * columns[:, : self.weights(X.shape[1])]

    def input_gradient(self, X, G) -> np.ndarray:
        """Gradient in X of the sum of `G_ij h(x_i)'h(x_j)`, h the rows of the design: (n, D), (n, n) -> (n, D)."""
        if self.name != "linear":
            return np.zeros_like(X)
        return WEIGHT_SD**2 * ((G + G.T) @ X)


def prior_covariance(K, mean, X) -> np.ndarray:
    """cov(f) = K + H H' of a partition, including the weights of the mean; a new full matrix."""
    H = mean.design(X)
    return K + H @ H.T
