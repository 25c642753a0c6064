"""Options of the expert `dgp`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from bcmdist.learning.method_options import declare_options
from bcmdist.storage.bounds import COUNT, Bounds


@dataclass(frozen=True)
class DeepOptions:
    """Options of a deep Gaussian process."""

    layers: Annotated[int, "L", Bounds(1, 100)] = 2
    """layers of dgp; 1: values at query points (fitc), which are trained as layers are"""
    units: Annotated[int | None, "H", Bounds(1, 10**6)] = None
    """hidden units of each layer of dgp except the last [default: 8; where measurements are learned,
    processes of 8 and of 2 are mixed]"""
    deep_sites: Literal["tied", "shared", "partition", "row"] = "tied"
    """approximation of the layers of dgp: one shared factor, optimised (tied, AEP); or, starting from there,
    expectation propagation with one factor for all training rows (shared, SEP), for each partition of these, or for
    each row (EP: up to a few thousand rows)"""
    train_rows: Annotated[int | None, "N", COUNT] = None
    """rows, drawn at random, on which the layers of dgp are trained; where they are more than 50,000, each 50,000 are a
    task of their own, and the layers of all tasks are averaged after each 200 steps [default: 50,000]"""


declare_options("dgp", DeepOptions)
