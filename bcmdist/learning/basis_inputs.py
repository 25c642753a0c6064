"""What is settled before the shared variables of a fit are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean


@dataclass(frozen=True)
class BasisInputs:
    """What is settled before the shared variables are made; all in scaled units."""

    sample: np.ndarray
    """rows of the data in random order, (n, D)"""
    targets: np.ndarray | None
    """what these say of the latent f, (n, C); None where they cannot be regressed on"""
    noise: np.ndarray
    """with which they say it, (n,)"""
    rows: int
    """of all data, N"""
    kernel: Kernel
    mean: Mean
    count: int
    """functions that are asked for, at most (`--query`), or units of a network (`--units`)"""
    method: str
    """how query points are chosen"""
    seed: int
    residual: str
    """that of the expert, which the shared variables are to carry"""
    low: np.ndarray
    """smallest value of each input in all data, (D,)"""
    high: np.ndarray
    """(D,)"""
    places: np.ndarray | None = None
    """where predictions will be wanted, (m, D)"""
    row: np.ndarray | None = None
    """where each row of the sample stands in the data, (n,)"""
    learned: bool = False
    """whether hyper-parameters were learned: what they ask for came out late"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """the expert's own, by the names of `Settings`"""
