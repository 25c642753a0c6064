"""The inputs from which a method makes the shared variables of a fit."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean


@dataclass(frozen=True)
class BasisInputs:
    """Inputs from which a method makes its shared variables; all in scaled units."""

    sample: np.ndarray
    """rows of the data in random order, (n, D)"""
    targets: np.ndarray | None
    """regression targets for f at the sample, (n, C); None if the likelihood has none (`working_targets`)"""
    noise: np.ndarray
    """noise variances of these targets, (n,)"""
    rows: int
    """number of rows of all data, N"""
    kernel: Kernel
    mean: Mean
    count: int
    """requested maximum number of functions or query points (`Method.size`)"""
    method: str
    """method that chooses query points"""
    seed: int
    residual: str
    """residual of the expert (`bcmdist.experts.residual`), passed on to the shared variables"""
    low: np.ndarray
    """smallest value of each input in all data, (D,)"""
    high: np.ndarray
    """largest value of each input in all data, (D,)"""
    places: np.ndarray | None = None
    """inputs of future predictions, (m, D)"""
    row: np.ndarray | None = None
    """index of each row of the sample in the data, (n,)"""
    learned: bool = False
    """whether hyper-parameters were learned, not given"""
    learned_noise: np.ndarray | None = None
    """the part of `noise` that is no known error, (n,); None: all of it"""
    options: Any = None
    """options of the method, as its `options`"""
