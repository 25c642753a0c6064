"""Errors of conformance checks, and derivatives by finite differences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.errors import InvalidOption

SEED = 20290
STEP = 1e-5  # of central differences; balances rounding, 1e-16 / STEP, and truncation, STEP^2
TOLERANCE = 1e-6  # relative error of derivatives compared with finite differences
ROUNDING = 1e-13  # relative error of values computed in two ways
SOLVED = 1e-9  # relative error of solutions of linear systems
# For registration, where derivatives may be numerical and distances may be differences of squares.
LENIENT_TOLERANCE, LENIENT_ROUNDING = 1e-3, 1e-7


@dataclass(frozen=True)
class Checked:
    """An implementation under test: its names, and the tolerated errors."""

    name: str
    """name shown to users: "kernel periodic", for example"""
    owner: str
    """name of its class"""
    tolerance: float = TOLERANCE
    rounding: float = ROUNDING

    def holds(self, condition: Any, what: str, expected: str, found: Any, remedy: str = "") -> None:
        """Raise `InvalidOption` unless a condition holds."""
        if not condition:
            remedy = remedy or f"correct it in {self.owner}"
            raise InvalidOption(f"{self.name}, {what}: expected {expected}, got {found}; {remedy}")

    def equal(
        self,
        what: str,
        found: Any,
        expected: Any,
        remedy: str = "",
        *,
        names: Sequence[str] | None = None,
        rtol: float | None = None,
        atol: float | None = None,
    ) -> None:
        """Raise `InvalidOption` if arrays differ in shape or value; a value is named by `names`, or by its index."""
        found, expected = np.asarray(found), np.asarray(expected)
        self.holds(found.shape == expected.shape, what, f"an array of shape {expected.shape}", found.shape, remedy)
        rtol = self.rounding if rtol is None else rtol
        atol = rtol * np.abs(expected).max(initial=0.0) if atol is None else atol
        for place in np.argwhere(~np.isclose(found, expected, rtol=rtol, atol=atol))[:1].tolist():
            where = names[place[0]] if names else place
            a, b = (f"{one[tuple(place)]:.8g} at {where}" for one in (expected, found))
            self.holds(False, what, a, b, remedy)

    def not_negative(self, what: str, found: Any, rounding: float = 0.0) -> None:
        """Raise `InvalidOption` if a number is below `-rounding`."""
        self.holds(np.all(found >= -rounding), what, "no number below 0", f"{np.min(found):.3g}")

    def derivative(
        self, what: str, found: Any, numeric: Any, function: str, *, names: Sequence[str] | None = None
    ) -> None:
        """Raise `InvalidOption` if derivatives differ from central differences of a function."""
        remedy = f"correct it in {self.owner}: the expected value is the finite difference of `{function}`"
        self.equal(what, found, numeric, remedy, rtol=self.tolerance, atol=0.1 * self.tolerance, names=names)


def slope(function: Callable[[np.ndarray], Any], at: np.ndarray) -> np.ndarray:
    """Return central differences of a function in each of its P arguments, (P, ...)."""
    return np.array([(function(at + h) - function(at - h)) / (2 * STEP) for h in STEP * np.eye(len(at))])


def seeded(*shape: int) -> np.ndarray:
    """Return standard normal numbers, always the same."""
    return np.random.default_rng(SEED).standard_normal(shape)
