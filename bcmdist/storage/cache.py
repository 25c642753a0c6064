"""Least-recently-used caches, bounded by bytes.

They may be used from any thread. Two threads that miss the same key at the same time both make the value; either value
is kept, since they are equal.
"""

from collections.abc import Callable, Hashable
from typing import TypeVar

from zict import LRU

Value = TypeVar("Value")


def least_recently_used(most_bytes: float, size: Callable[[Value], float]) -> LRU[Hashable, Value]:
    """Return an empty cache of at most `most_bytes`. A larger value is kept until the next one is added.

    size : function from a value to its bytes
    """
    cache: LRU[Hashable, Value] = LRU(most_bytes, {}, weight=lambda _, value: min(size(value), cache.n))
    return cache


def get_or_make(cache: LRU[Hashable, Value], key: Hashable, make: Callable[[], Value]) -> Value:
    """Return the value of a key; make and store it if it is missing."""
    try:
        return cache[key]
    except KeyError:
        pass  # `make` is called outside the handler: it may use the cache too
    value = cache[key] = make()
    return value
