"""Mean and variance of f at uncertain inputs x ~ N(u, S), by one of three methods.

    exact       closed-form averages over the committee's posterior (`exact`)
    taylor      from slopes and curvatures at u (`taylor`)
    montecarlo  averages over a fixed set of draws (`sampled`)

f is then not normal. Its first two moments are predicted, and observations as if f were normal with these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import Kernel
from bcmdist.prediction.interface import LatentPredictor
from bcmdist.prediction.uncertain import exact, sampled, taylor
from bcmdist.prediction.unseen import averaged_over_categories

Way = Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps a predictor, scaled inputs (n, D) and their covariances (n, D, D) to mean and variance, shaped as by `latent`"""
WAYS: dict[str, Way] = {"exact": exact.moments, "taylor": taylor.moments, "montecarlo": sampled.moments}
ROUGH = ("matern12",)  # kernels without a derivative at zero distance


@dataclass(frozen=True)
class InputUncertainty:
    """Variances of the inputs of n rows, and the method of averaging over them."""

    variance: np.ndarray
    """variances, (n, D), or covariances, (n, D, D), of the inputs, in original units"""
    way: str
    """a key of `WAYS`"""

    def __getitem__(self, rows) -> "InputUncertainty":
        """Select rows."""
        return InputUncertainty(self.variance[rows], self.way)

    def __add__(self, other: "InputUncertainty") -> "InputUncertainty":
        """Concatenate with the rows of `other`."""
        return InputUncertainty(np.concatenate([self.variance, other.variance]), self.way)

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D) with this uncertainty."""

        scaling = predictor.model.scaling

        def moments(inputs, rows):
            S = scaling.input_covariances(scaling.original_inputs(inputs), self.variance[rows])
            return WAYS[self.way](predictor, inputs, S)

        return averaged_over_categories(predictor.model, X, moments)


def chosen_way(predictor: type[LatentPredictor], snapshot, asked: str | None) -> str:
    """The requested method; by default `exact` where the model supports it, else `montecarlo`.

    Raises
    ------
    InvalidOption
        There is no such method, or the model does not support it.
    """
    if asked is not None and asked not in WAYS:
        raise InvalidOption(f"inputs: expected {', '.join(WAYS)}, got {asked!r}; give one of these")
    if asked == "taylor":
        _refuse_rough(snapshot.model.shared.kernel)
    if asked not in (None, "exact"):
        return asked
    try:
        exact.refuse(predictor, snapshot)
    except InvalidOption:
        if asked is None:
            return "montecarlo"
        raise
    return "exact"


def _refuse_rough(kernel: Kernel) -> None:
    if any(leaf.expression.removesuffix("-iso") in ROUGH for leaf in kernel.leaves):
        raise InvalidOption(
            f"inputs: expected a kernel with slopes for taylor, got {kernel.expression}; give --inputs montecarlo"
        )
