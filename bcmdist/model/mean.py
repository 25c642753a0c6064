"""The prior mean: zero, a constant, or a linear trend, with a vague prior on its weights.

f(x) = g(x) + h(x)' w, with g the zero-mean process of the kernel and w ~ N(0, I). All partitions share the weights w,
like the whitened query values, so w is appended to the shared variables and the algebra of messages does not change
(SYSTEMS I.9).

Where rows observe several outputs, each has a mean of its own: `constant(0, 1, 2)`, with the numbers of the one-hot
inputs that name a row's output.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray

# Prior standard deviation of each weight, in units of the scaled target (or of the latent f) per
# standard deviation of an input. Vague on that scale; arbitrary.
WEIGHT_SD = 5.0

MEAN_NAMES = ("zero", "constant", "linear")
NUMBERED = re.compile(r"([a-z]+)\((\d+(?:, \d+)*)\)")


def mean_of_outputs(name: str, outputs: Sequence[int]) -> str:
    """Name of the mean where each output has its own, with the inputs that name outputs; unchanged without outputs."""
    return f"{name}({', '.join(map(str, outputs))})" if len(outputs) and name != "zero" else name


@dataclass(frozen=True)
class Mean:
    """Basis of the prior mean: `zero` (no weights), `constant` (1 weight), `linear` (1 + D weights).

    Of P outputs: P weights of `constant`, P (1 + D - P) of `linear`.
    """

    name: str

    def __post_init__(self) -> None:
        if self.kind not in MEAN_NAMES:
            raise InvalidOption(
                f"mean: expected one of {', '.join(MEAN_NAMES)}, got {self.name!r}; give one of these names"
            )

    def weights(self, inputs: int) -> int:
        """Number P of shared weights for D inputs."""
        each, P = max(1, len(self.outputs)), len(self.outputs)
        return each * {"zero": 0, "constant": 1, "linear": 1 + inputs - P}[self.kind]

    @cached_property
    def kind(self) -> str:
        """The name without the inputs of outputs."""
        found = NUMBERED.fullmatch(self.name)
        return found[1] if found else self.name

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Numbers of the one-hot inputs that name a row's output, (P,); () where there is only one output."""
        found = NUMBERED.fullmatch(self.name)
        return tuple(map(int, found[2].split(", "))) if found else ()

    def design(self, X: FloatArray) -> FloatArray:
        """Basis at the rows of X times the prior standard deviation: (n, D) -> (n, P)."""
        if self.outputs:
            of_outputs, others = X[:, self.outputs], np.delete(X, self.outputs, axis=1)
            factors = [of_outputs, *(of_outputs * x[:, None] for x in others.T)]
            columns = np.hstack(factors if self.kind == "linear" else factors[:1])
        else:
            columns = np.column_stack([np.ones(len(X)), X]) if self.kind == "linear" else np.ones((len(X), 1))
        return WEIGHT_SD * columns[:, : self.weights(X.shape[1])]

    def input_gradient(self, X: FloatArray, G: FloatArray) -> FloatArray:
        """Gradient in X of the sum of `G_ij h(x_i)'h(x_j)`, h the rows of the design: (n, D), (n, n) -> (n, D)."""
        gradient, linear, S = np.zeros_like(X), self.kind == "linear", WEIGHT_SD**2 * (G + G.T)
        if not self.outputs:
            return S @ X if linear else gradient
        of_outputs, others = X[:, self.outputs], np.delete(X, self.outputs, axis=1)
        of_others = (1.0 + others @ others.T) if linear else 1.0
        gradient[:, self.outputs] = (S * of_others) @ of_outputs
        if linear:
            gradient[:, np.delete(np.arange(X.shape[1]), self.outputs)] = (S * (of_outputs @ of_outputs.T)) @ others
        return gradient


def prior_covariance(K: FloatArray, mean: Mean, X: FloatArray) -> FloatArray:
    """cov(f) = K + H H' of a partition, including the weights of the mean; a new full matrix."""
    H = mean.design(X)
    return K + H @ H.T
