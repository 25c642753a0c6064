"""Inputs that are known up to a normal error, x ~ N(u, S): mean and variance of f there, by name of the way.

    exact       averages in closed form, from what the committee believes (`exact`)
    taylor      from slopes and curvatures at u (`taylor`)
    montecarlo  averages over a fixed set of draws (`sampled`)

f is no longer normal; what is predicted are its first two moments, and observations as if it were normal with these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import Kernel
from bcmdist.model.scaling import Scaling
from bcmdist.prediction.latent_predictor import LatentPredictor
from bcmdist.prediction.uncertain import exact, sampled, taylor
from bcmdist.prediction.unseen import averaged_over_categories

Way = Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From a predictor, scaled inputs (n, D) and their covariances (n, D, D) to mean and variance as of `latent`"""
WAYS: dict[str, Way] = {"exact": exact.moments, "taylor": taylor.moments, "montecarlo": sampled.moments}
ROUGH = ("matern12",)  # without a slope at their points


@dataclass(frozen=True)
class InputUncertainty:
    """By how much inputs may be off, and how to average over that."""

    variance: np.ndarray
    """of each input, (n, D), or covariances, (n, D, D), in original units"""
    way: str

    def __getitem__(self, rows) -> "InputUncertainty":
        """Of some rows."""
        return InputUncertainty(self.variance[rows], self.way)

    def __add__(self, other: "InputUncertainty") -> "InputUncertainty":
        """Of these rows and others."""
        return InputUncertainty(np.concatenate([self.variance, other.variance]), self.way)

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), known up to these."""

        def moments(inputs, rows):
            return WAYS[self.way](predictor, inputs, covariances(self.variance[rows], predictor.model.scaling))

        return averaged_over_categories(predictor.model, X, moments)


def covariances(variance, scaling: Scaling) -> np.ndarray:
    """Covariances of scaled inputs, (n, D, D)."""
    unit = scaling.x_scale
    if variance.ndim == 3:
        return variance / np.outer(unit, unit)
    return (variance / unit**2)[:, None, :] * np.eye(len(unit))


def chosen_way(predictor: type[LatentPredictor], snapshot, asked: str | None) -> str:
    """The way that was asked for; by default `exact` where it can be had, and `montecarlo` elsewhere.

    Raises
    ------
    InvalidOption
        There is none of that name, or the model cannot do with it.
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
