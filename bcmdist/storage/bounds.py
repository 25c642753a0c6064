"""Bounds of numeric options: declared in a dataclass field's type, checked when the dataclass is constructed.

    rows: Annotated[int, Bounds(1, 1000)] = 10

Error messages state the bounds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, get_args, get_type_hints

from bcmdist.errors import InvalidOption


@dataclass(frozen=True)
class Bounds:
    """Least and largest value of a number. Two integer bounds mean that the number must be whole."""

    least: float
    most: float
    above: bool = False
    """whether the number must be greater than `least`, not equal to it"""

    def refuse(self, name: str, value: Any) -> None:
        """Raise `InvalidOption` for the option `name` if `value` is outside the bounds or has the wrong type."""
        kinds: tuple = (Integral,) if self.whole else (Real,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InvalidOption(f"{name}: expected a {self._kind}, got {_shown(value)}; give one {self}")
        if value < self.least or (self.above and value == self.least):
            words = "a number above" if self.above else "at least"
            raise InvalidOption(f"{name}: expected {words} {self.least}, got {_shown(value)}; give a number {self}")
        if value > self.most:
            raise InvalidOption(f"{name}: expected at most {self.most}, got {_shown(value)}; give a number {self}")
        if value != value:
            raise InvalidOption(f"{name}: expected a number, got {value}; give one {self}")

    @property
    def whole(self) -> bool:
        """Whether the number must be whole."""
        return isinstance(self.least, int) and isinstance(self.most, int)

    @property
    def _kind(self):
        return "whole number" if self.whole else "number"

    def __str__(self):
        return f"{'above' if self.above else 'from'} {self.least} {'and up ' if self.above else ''}to {self.most}"


COUNT = Bounds(1, 10**12)
"""numbers of rows, points and the like; the largest is more than any machine holds"""
SEED = Bounds(0, 2**32 - 1)
"""seeds of numpy's legacy generators, which scikit-learn uses"""


@cache
def declared_bounds(kind: type) -> dict[str, Bounds]:
    """Return the declared bounds of a dataclass's fields, by name."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: [one for one in get_args(hint)[1:] if isinstance(one, Bounds)] for name, hint in hints.items()}
    return {name: bounds[0] for name, bounds in found.items() if bounds}


def refuse_outside(options: object, named: Callable[[str], str] = str) -> None:
    """Raise `InvalidOption` if a number in a dataclass, or in a list, is outside its bounds; skip None and strings.

    Parameters
    ----------
    named : function from a field's name to its name in error messages
    """
    for name, bounds in declared_bounds(type(options)).items():  # type: ignore[arg-type]  # a class has a hash
        value = getattr(options, name)
        for one in value if isinstance(value, list) else [value]:
            if one is not None and not isinstance(one, str):
                bounds.refuse(named(name), one)


def option_name(field: str) -> str:
    """Return the command-line option of a field."""
    return f"--{field.replace('_', '-')}"


def _shown(value):
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
