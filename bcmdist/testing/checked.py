"""The errors of conformance checks, and derivatives by finite differences."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import InvalidOption

SEED = 20290
STEP = 1e-5  # of central differences: rounding 1e-16 / STEP and truncation STEP^2 are alike
TOLERANCE = 1e-6  # relative error of derivatives against these
ROUNDING = 1e-13  # relative error of values that are computed in two ways
SOLVED = 1e-9  # the same of solutions of linear systems
# For what is registered, whose own derivatives may be numerical and whose distances may be differences of squares.
LENIENT_TOLERANCE, LENIENT_ROUNDING = 1e-3, 1e-7


@dataclass(frozen=True)
class Checked:
    """An implementation that is checked, by its names, and the errors that are accepted."""

    name: str
    """as users know it: "kernel periodic" """
    owner: str
    """its class"""
    tolerance: float = TOLERANCE
    rounding: float = ROUNDING

    def holds(self, condition, what: str, expected: str, found: Any, remedy: str = "") -> None:
        """Raise `InvalidOption` unless a condition holds."""
        if not condition:
            remedy = remedy or f"correct it in {self.owner}"
            raise InvalidOption(f"{self.name}, {what}: expected {expected}, got {found}; {remedy}")

    def equal(self, what: str, found, expected, remedy: str = "", *, names=None, rtol=None, atol=None) -> None:
        """Raise `InvalidOption` where arrays differ in shape or in a value, which is named by `names` or its index."""
        found, expected = np.asarray(found), np.asarray(expected)
        self.holds(found.shape == expected.shape, what, f"an array of shape {expected.shape}", found.shape, remedy)
        rtol = self.rounding if rtol is None else rtol
        atol = rtol * np.abs(expected).max(initial=0.0) if atol is None else atol
        for place in np.argwhere(~np.isclose(found, expected, rtol=rtol, atol=atol))[:1].tolist():
            where = names[place[0]] if names else place
            a, b = (f"{one[tuple(place)]:.8g} at {where}" for one in (expected, found))
            self.holds(False, what, a, b, remedy)

    def not_negative(self, what: str, found, rounding=0.0) -> None:
        """Raise `InvalidOption` where a number is below 0."""
        self.holds(np.all(found >= -rounding), what, "no number below 0", f"{np.min(found):.3g}")

    def derivative(self, what: str, found, numeric, function: str, **more) -> None:
        """Raise `InvalidOption` where derivatives differ from central differences of a function."""
        remedy = f"correct it in {self.owner}: the expected value is the finite difference of `{function}`"
        self.equal(what, found, numeric, remedy, rtol=self.tolerance, atol=0.1 * self.tolerance, **more)


def slope(function, at) -> np.ndarray:
    """Central differences of a function in each of its arguments, (P, ...)."""
    return np.array([(function(at + h) - function(at - h)) / (2 * STEP) for h in STEP * np.eye(len(at))])


def seeded(*shape) -> np.ndarray:
    """Standard normal numbers, the same each time."""
    return np.random.default_rng(SEED).standard_normal(shape)
