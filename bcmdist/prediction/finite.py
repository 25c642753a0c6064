"""Predictions that are no numbers are refused, and the first of them is named."""

import numpy as np

from bcmdist.errors import NotFinite


def finite_latent(mean, variance) -> tuple[np.ndarray, np.ndarray]:
    """A belief about f as it is; `NotFinite` where it is none."""
    for name, values in (("mean", mean), ("variance", variance)):
        _refuse(name, values, ~np.isfinite(values))
    return mean, variance


def refuse_nan(predictions) -> None:
    """Raise `NotFinite` where a predicted quantity is no number; moments of heavy tails may be infinite."""
    for name, values in predictions.items():
        _refuse(name, values, np.isnan(values))


def _refuse(name, values, wrong):
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise NotFinite(
            f"prediction: expected numbers, got {name} {values[tuple(place)]} at row {place[0]} of {len(values)} "
            f"({int(wrong.sum())} such); check that inputs are in the range of the training data, else "
            "restore the model from a copy"
        )
