"""Errors of the inputs that rows were seen at, and what experts do about them (`--noisy-inputs`)."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from bcmdist.errors import InvalidData


@dataclass(frozen=True)
class InputErrors:
    """How experts go from inputs as they were seen to those that rows were measured at; part of the model."""

    way: str
    """by what hyper-parameters were learned: clean: inputs where they most probably were; hmc: draws of where they may
    have been"""
    highest: float
    """noise variance of scaled targets at which cleaning begins, before it is lowered to the likelihood's"""
    variance: tuple[float, ...] | None = None
    """of the errors of each scaled input, (D,), where that was learned; None: it stands beside rows, as X_variance"""
    seed: int = 0
    """of draws"""
    WAYS: ClassVar[tuple[str, ...]] = ("clean", "hmc")

    def roots(self, part, rows, scaling) -> np.ndarray:
        """R of each row of a partition, (n, D, D): R R' is the covariance of the errors of its scaled inputs.

        Raises
        ------
        InvalidData
            As of `refuse_unknown`.
        """
        if self.variance is not None:
            return np.tile(np.diag(np.sqrt(self.variance)), (len(rows.X), 1, 1))
        self.refuse_unknown(part.data)
        if rows.X_variance.ndim == rows.X.ndim:
            return np.sqrt(rows.X_variance)[:, :, None] / scaling.x_scale[:, None] * np.eye(len(scaling.x_scale))
        share, axes = np.linalg.eigh(rows.X_variance / np.multiply.outer(scaling.x_scale, scaling.x_scale))
        return axes * np.sqrt(np.maximum(share, 0.0))[:, None]

    def refuse_unknown(self, data) -> None:
        """Raise `InvalidData` where a data set does not say how far off its inputs may be, nor was that learned."""
        if self.variance is None:
            refuse_unknown_errors(data)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def refuse_unknown_errors(data) -> None:
    """Raise `InvalidData` where a data set does not say how far off its inputs may be."""
    if not data.variance:
        raise InvalidData(
            f"{data.url}: expected an array {data.x}_variance beside {data.x} for noisy inputs, a variance for each, "
            "found none; add it, zeros where inputs are exact, or learn with --noisy-inputs hmc, which finds one for "
            "each column"
        )


def from_json(value) -> InputErrors:
    """What `InputErrors.to_json` gives."""
    known = dict(value)
    if known.get("variance") is not None:
        known["variance"] = tuple(known["variance"])
    return InputErrors(**known)
