"""Measurement errors of inputs: an optional part of a model, added by a method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.data.registry import Registry
from bcmdist.data.rows import Rows
from bcmdist.errors import InvalidData
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.scaling import Scaling
from bcmdist.storage.commits import Reference
from bcmdist.storage.fields import damaged, decode, shown


class InputErrors(ABC):
    """The errors of inputs that experts account for; stored as `input_errors` among the facts of a model.

    Each implementation is a dataclass, registered in `INPUT_ERRORS` under every `way` that it stores. The annotations
    of its fields are checked when it is loaded.
    """

    way: str
    """value of the option `noisy_inputs` with which the model was fitted"""
    variance: tuple[float, ...] | None
    """learned error variance of each scaled input, (D,); None: rows have an array X_variance"""

    @abstractmethod
    def expert(self, model: Reference) -> Callable[[Partition, Rows], Any]:
        """Return the task that computes the message of a partition.

        Parameters
        ----------
        model : `bcmdist.storage.commits.Reference` of the stored model
        """

    @abstractmethod
    def roots(self, data: Dataset, X: FloatArray, X_variance: FloatArray | None, scaling: Scaling) -> FloatArray:
        """Root R of each row, (n, D, D): R R' is the covariance of the errors of its scaled inputs.

        Parameters
        ----------
        data : data set of the rows, for the error text
        X, X_variance : inputs (n, D) and their variances (n, D) or covariances (n, D, D), in original units; None where
            the data have none

        Raises
        ------
        InvalidData
            As in `refuse_unknown`.
        """

    def refuse_unknown(self, data: Dataset) -> None:
        """Raise `InvalidData` where error variances are neither learned nor stored with a data set."""
        if self.variance is None:
            refuse_unknown_errors(data)


INPUT_ERRORS: Registry[type[InputErrors]] = Registry("noisy_inputs")


def refuse_unknown_errors(data: Dataset) -> None:
    """Raise `InvalidData` where a data set has no error variances of its inputs."""
    if not data.variance:
        raise InvalidData(
            f"{data.url}: expected an array {data.x}_variance with the error variance of each entry of {data.x}, "
            "found none; add it, with zeros where inputs are exact, or use --noisy-inputs hmc, which learns a variance "
            "for each column"
        )


def load_input_errors(value: Mapping[str, Any], inputs: int, where: str) -> InputErrors:
    """Restore input errors of `inputs` columns from their fields.

    Raises
    ------
    ModelDamaged
        The method is unknown, or fields are invalid for it.
    """
    way = value.get("way")
    if not isinstance(way, str) or way not in INPUT_ERRORS:
        raise damaged(where, "input_errors of a method that is known here", shown(way))
    found: InputErrors = decode(INPUT_ERRORS[way], value, f"{where}: input_errors")
    if found.variance is not None and len(found.variance) != inputs:
        raise damaged(where, f"{inputs} variances of input_errors", shown(found.variance))
    return found
