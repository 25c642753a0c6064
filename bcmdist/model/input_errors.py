"""Measurement errors of inputs: an optional part of a model, added by a method."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidData
from bcmdist.storage.fields import check_fields, damaged
from bcmdist.storage.kinds import Kind, shown


class InputErrors(ABC):
    """The errors of inputs that experts account for; stored as `input_errors` among the facts of a model.

    Each implementation is registered in `INPUT_ERRORS` under every `way` that it stores.
    """

    way: str
    """value of the option `noisy_inputs` with which the model was fitted"""
    variance: tuple[float, ...] | None
    """learned error variance of each scaled input, (D,); None: rows have an array X_variance"""
    FIELDS: ClassVar[Mapping[str, Kind]]
    """fields of the stored form, by name"""
    FACTS: ClassVar[Mapping[str, Kind]]
    """fields of the learning report, by name"""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Mapping[str, Any]) -> "InputErrors":
        """Restore from the result of `to_json`."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """JSON-ready fields, including `way` and `variance`."""

    @abstractmethod
    def expert(self, model) -> Callable[[Any, Any], Any]:
        """Return the task that computes the message of a partition.

        Parameters
        ----------
        model : `bcmdist.storage.commits.Reference` of the stored model
        """

    def refuse_unknown(self, data) -> None:
        """Raise `InvalidData` where error variances are neither learned nor stored with a data set."""
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
    """Raise `ModelDamaged` where the stored `input_errors` are invalid for their method or for `inputs` columns."""
    way = value.get("way")
    if not isinstance(way, str) or way not in INPUT_ERRORS:
        raise damaged(where, "input_errors of a method that is known here", shown(way))
    check_fields(value, INPUT_ERRORS[way].FIELDS, f"{where}: input_errors")
    if value.get("variance") is not None and len(value["variance"]) != inputs:
        raise damaged(where, f"{inputs} variances of input_errors", shown(value["variance"]))
