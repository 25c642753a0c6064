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

# Of hyper-parameters that were learned as if inputs were exact, the name of a prior mean, and `Settings`.
Learner = Callable[[Point, TrainingContext, str, Any], tuple[Point, InputErrors]]


@dataclass(frozen=True)
class InputMethod:
    """What a fit does about errors of its inputs; by default nothing."""

    learn: Learner | None = None
    """hyper-parameters that account for the errors, and what experts need to know of these"""
    kernel: str | None = None
    """that "auto" stands for, where it is not that of the expert"""
    rows: int | None = None
    """of a partition by default, where they are not those of the expert"""
    refuse: Callable[[Any, Likelihood | None], None] = lambda settings, likelihood: None
    """raises `InvalidOption` for `Settings` or a likelihood (None: not known yet) that it cannot be combined with"""
    refuse_data: Callable[[Any, Dataset], None] = lambda settings, data: None
    """raises `InvalidData` for a data set that lacks what `Settings` require"""


EXACT_INPUTS = "no"
INPUT_METHODS: Registry[InputMethod] = Registry("noisy_inputs")
INPUT_METHODS.add(EXACT_INPUTS, InputMethod())
