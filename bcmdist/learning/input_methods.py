"""Methods for training inputs with measurement errors, by the values of the option `noisy_inputs`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bcmdist.data.dataset import Dataset
from bcmdist.data.registry import Registry
from bcmdist.learning.point import Point
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.input_errors import InputErrors
from bcmdist.model.likelihoods import Likelihood

# Arguments: hyper-parameters learned as if inputs were exact, training context, name of the prior mean, `Settings`.
Learner = Callable[[Point, TrainingContext, str, Any], tuple[Point, InputErrors]]


@dataclass(frozen=True)
class InputMethod:
    """How a fit treats errors of its inputs; by default they are ignored."""

    learn: Learner | None = None
    """learns hyper-parameters that account for the errors, and the input errors for the experts"""
    kernel: str | None = None
    """kernel for "auto", if not the expert's"""
    rows: int | None = None
    """default rows of a partition, if not the expert's"""
    refuse: Callable[[Any, Likelihood | None], None] = lambda settings, likelihood: None
    """raises `InvalidOption` for `Settings` or a likelihood (None: not known yet) that the method does not support"""
    refuse_data: Callable[[Any, Dataset], None] = lambda settings, data: None
    """raises `InvalidData` for a data set that lacks what `Settings` require"""


EXACT_INPUTS = "no"
INPUT_METHODS: Registry[InputMethod] = Registry("noisy_inputs")
INPUT_METHODS.add(EXACT_INPUTS, InputMethod())
