"""Measurement errors of the inputs of rows: an optional part of a model, which a method adds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidData
from bcmdist.storage.fields import check_fields, damaged
from bcmdist.storage.kinds import Kind, shown


class InputErrors(ABC):
    """What experts know of the errors of inputs; `input_errors` among the facts of a stored model.

    A kind of these is registered in `INPUT_ERRORS` under each `way` that it stores.
    """

    way: str
    """the value of the option `noisy_inputs` with which the model was fitted"""
    variance: tuple[float, ...] | None
    """of the errors of each scaled input, (D,), where it was learned; None: rows have an array X_variance"""
    FIELDS: ClassVar[Mapping[str, Kind]]
    """of the stored part, by name"""
    FACTS: ClassVar[Mapping[str, Kind]]
    """of what learning reports, by name"""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, Any]) -> "InputErrors":
        """The inverse of `to_json`."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with `way` and `variance`."""

    @abstractmethod
    def expert(self, model) -> Callable[[Any, Any], Any]:
        """The task that computes the message of a partition.

        Parameters
        ----------
        model : `bcmdist.storage.commits.Reference` of the stored model
        """

    def refuse_unknown(self, data) -> None:
        """Raise `InvalidData` where the error variances of a data set are neither stored with it nor learned."""
        if self.variance is None:
            refuse_unknown_errors(data)


INPUT_ERRORS: Registry[type[InputErrors]] = Registry("noisy_inputs")


def refuse_unknown_errors(data) -> None:
    """Raise `InvalidData` where a data set has no error variances of its inputs."""
    if not data.variance:
        raise InvalidData(
            f"{data.url}: expected an array {data.x}_variance beside {data.x} for noisy inputs, a variance for each, "
            "found none; add it, zeros where inputs are exact, or learn with --noisy-inputs hmc, which finds one for "
            "each column"
        )


def check_input_errors(value, inputs: int, where: str) -> None:
    """Raise `ModelDamaged` where the stored part is not one that its method can read for so many inputs."""
    way = value.get("way")
    if not isinstance(way, str) or way not in INPUT_ERRORS:
        raise damaged(where, "input_errors of a method that is known here", shown(way))
    check_fields(value, INPUT_ERRORS[way].FIELDS, f"{where}: input_errors")
    if value.get("variance") is not None and len(value["variance"]) != inputs:
        raise damaged(where, f"{inputs} variances of input_errors", shown(value["variance"]))
