"""Kinds of values for checking fields of JSON documents, by type and range."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HASH = re.compile(r"[0-9a-f]{64}")
LONGEST_SHOWN = 40


@dataclass(frozen=True)
class Kind:
    """A kind of value: description, test, and whether a field of this kind is required."""

    words: str
    """description for error messages"""
    holds: Callable[[Any], bool]
    """whether a value is of this kind"""
    needed: bool = True
    """whether the field is required"""

    @property
    def perhaps(self) -> "Kind":
        """The same kind, as an optional field."""
        return Kind(self.words, self.holds, needed=False)


def is_number(value) -> bool:
    """Whether a value is a finite number; booleans are not numbers."""
    return type(value) in (int, float) and abs(value) < math.inf and math.isfinite(float_of(value))


def float_of(value) -> float:
    """Convert a number to float; infinity if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def is_hash(value) -> bool:
    """Whether a value is a SHA-256 in hexadecimal, such as the name of a blob."""
    return isinstance(value, str) and HASH.fullmatch(value) is not None


def _whole(least):
    return lambda value: type(value) is int and least <= value < 2**63


TEXT = Kind("a text", lambda value: isinstance(value, str))
NUMBER = Kind("a finite number", is_number)
POSITIVE = Kind("a positive number", lambda value: is_number(value) and value > 0)
NOT_NEGATIVE = Kind("a number of at least 0", lambda value: is_number(value) and value >= 0)
COUNT = Kind("a whole number of at least 0", _whole(0))
SEVERAL = Kind("a whole number of at least 1", _whole(1))
BLOB = Kind("the hash of a blob", is_hash)
NAMED = Kind("an object", lambda value: isinstance(value, dict))


def one_of(names: Iterable[str]) -> Kind:
    """One of several strings."""
    return Kind(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def nullable(kind: Kind) -> Kind:
    """A kind or null."""
    return Kind(f"{kind.words} or null", lambda value: value is None or kind.holds(value))


def maybe(kind: Kind) -> Kind:
    """A kind or null, as an optional field."""
    return nullable(kind).perhaps


def every(kind: Kind) -> Kind:
    """A list whose items are of a kind."""
    return Kind(f"a list of {kind.words}", lambda value: isinstance(value, list) and all(map(kind.holds, value)))


def each(kind: Kind) -> Kind:
    """An object whose values are of a kind, under any names."""
    return Kind(
        f"an object of {kind.words} by name",
        lambda value: isinstance(value, dict) and all(map(kind.holds, value.values())),
    )


def fields(kinds: Mapping[str, Kind]) -> Kind:
    """An object with fields of given kinds; further fields are allowed."""

    def holds(value):
        return isinstance(value, dict) and not any(wrong_fields(value, kinds))

    return Kind("an object of " + ", ".join(kinds), holds)


def wrong_fields(document, kinds: Mapping[str, Kind]) -> list[tuple[str, Kind]]:
    """Return names and kinds of the fields that are missing in a document or are of another kind."""
    return [
        (name, kind)
        for name, kind in kinds.items()
        if (kind.needed if name not in document else not kind.holds(document[name]))
    ]


def shown(value) -> str:
    """Return the `repr` of a value, shortened."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
