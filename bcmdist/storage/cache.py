"""Values that are kept as long as there is room: those used last, up to a number of bytes.

Any thread may ask. Two that miss the same value at the same time both make it, and either is kept: they are equal.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from zict import LRU

Value = TypeVar("Value")


def least_recently_used(most_bytes: float, size: Callable[[Value], float]) -> LRU[Hashable, Value]:
    """An empty cache bounded by memory; a value larger than all of it is kept until the next one comes."""
    cache: LRU[Hashable, Value] = LRU(most_bytes, {}, weight=lambda _, value: min(size(value), cache.n))
    return cache


def get_or_make(cache: LRU[Hashable, Value], key: Hashable, make: Callable[[], Value]) -> Value:
    """The value of a key, made where it is not there."""
    try:
        return cache[key]
    except KeyError:
        pass  # what is made may look things up too
    value = cache[key] = make()
    return value
