"""Options of the experts `rvm` and `rvm_star`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bcmdist.learning.method_options import declare_options
from bcmdist.storage.bounds import COUNT


@dataclass(frozen=True)
class SelectionOptions:
    """Options of the selection of basis functions."""

    rvm_update: Literal["fast", "em", "mackay", "direct"] = "fast"
    """how rvm selects basis functions: one at a time; or starting from all, by expectation maximisation, by MacKay's
    fixed point, or by a quasi-Newton method, each at a cubic cost per step"""
    rvm_dictionary: Annotated[int | None, "M", COUNT] = None
    """candidate basis functions of rvm: --query of them at a time are added to those kept, with a pass over all rows
    each time [default: as many as --query]"""
    rvm_lengthscale: Literal["kernel", "adapted"] = "kernel"
    """lengthscales of the basis functions of rvm: those learned for the kernel; or adapted from there to the evidence
    of all rows, in up to some hundreds of fast passes"""


@dataclass(frozen=True)
class RelevanceOptions(SelectionOptions):
    """Options of relevance vectors, also for classes."""

    rvm_classes: Literal["laplace", "naive", "cavity"] = "laplace"
    """how rvm approximates rows of two classes while selecting: at the joint mode (laplace), by mean field (naive), or
    with the cavities of expectation propagation (cavity); the last two are slower (messages are always Laplace's)"""


declare_options("rvm", RelevanceOptions)
declare_options("rvm_star", SelectionOptions)
