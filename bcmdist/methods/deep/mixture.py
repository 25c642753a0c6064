"""Mixtures of deep Gaussian processes that were trained in different ways.

Each process absorbs all rows in its own last layer (`bcmdist.methods.deep.shared`), with its own noise.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from bcmdist.methods.deep.shared import Deep
from bcmdist.model.kernels import Kernel
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Arrays, Member, Shared
from bcmdist.storage.arrays import check_array
from bcmdist.storage.fields import damaged

NOISE = "deep_noise"
NOISE_TOLERANCE = 1e-9  # tolerance for the mean of the noise shares, which is 1 up to rounding


@dataclass(frozen=True)
class DeepMixture(Shared):
    """K deep Gaussian processes, whose last layers have equal numbers of centres."""

    kind: ClassVar[str] = "deep_mixture"
    noun: ClassVar[str] = Deep.noun
    exhaustive: ClassVar[bool] = False
    each: tuple[Deep, ...]
    noise: np.ndarray
    """noise variance of each process relative to the likelihood's, (K,); the mean is 1"""
    kernel: Kernel
    mean: Mean
    residual: str = "diagonal"
    jitter: float = 0.0

    @property
    def inputs(self) -> int:
        return self.each[0].inputs

    @property
    def functions(self) -> int:
        return sum(one.functions for one in self.each)

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members

    @cached_property
    def _members(self):
        return tuple(Member(one, float(noise)) for one, noise in zip(self.each, self.noise, strict=True))

    def fill(self, X, V) -> None:
        B = self.each[0].functions
        for k, one in enumerate(self.each):
            one.fill(X, V[:, k * B : (k + 1) * B])

    def summary(self, belief, original) -> dict:
        """Layers of each process, in the form of `Deep.summary` with the process number."""
        summaries = (one.summary(belief[k], original)["layers"] for k, one in enumerate(self.each))
        return {"layers": [{"process": k, **layer} for k, layers in enumerate(summaries, 1) for layer in layers]}

    def to_arrays(self) -> tuple[Arrays, dict]:
        each = enumerate((one.to_arrays()[0] for one in self.each), 1)
        named = {f"{_of(k)}{name}": array for k, arrays in each for name, array in arrays.items()}
        return named | {NOISE: self.noise}, {}

    @classmethod
    def from_arrays(cls, arrays, facts, kernel, mean, residual) -> "DeepMixture":
        count = len(arrays[NOISE])
        each = (Deep.from_arrays(_of_member(arrays, k), facts, kernel, mean, residual) for k in range(1, count + 1))
        return cls(tuple(each), arrays[NOISE], kernel, mean, residual, facts["jitter"])

    @classmethod
    def check_arrays(cls, arrays, facts, inputs, where) -> None:
        if NOISE not in arrays or np.ndim(arrays[NOISE]) != 1 or not len(arrays[NOISE]):
            raise damaged(where, f"shares of processes in an array {NOISE}", "none")
        check_array(arrays[NOISE], where, NOISE, shape=arrays[NOISE].shape, positive=True)
        for k in range(1, len(arrays[NOISE]) + 1):
            Deep.check_arrays(_of_member(arrays, k), facts, inputs, f"{where}, {_of(k)}")

    def check(self, where) -> None:
        if abs(self.noise.mean() - 1.0) > NOISE_TOLERANCE:
            raise damaged(where, f"shares of 1 in the mean in {NOISE}", f"{self.noise.mean():g}")
        if len(counts := {one.functions for one in self.each}) > 1:
            raise damaged(where, "as many centres in each last layer", f"{sorted(counts)}")
        for k, one in enumerate(self.each, 1):
            one.check(f"{where}, {_of(k)}")


def mixed(each: tuple[Deep, ...], noise) -> DeepMixture:
    """Mixture of processes with noise variances `noise` (K,)."""
    first = each[0]
    return DeepMixture(each, noise / noise.mean(), first.kernel, first.mean, first.residual)


def _of(k):
    """Prefix of the array names of process k, counted from 1."""
    return f"deep{k}_"


def _of_member(arrays, k):
    return {name.removeprefix(_of(k)): array for name, array in arrays.items() if name.startswith(_of(k))}
