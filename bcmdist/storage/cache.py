"""Values that are kept as long as there is room: those used last, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """A cache bounded by memory; a value larger than all of it is kept until the next one comes."""

    def __init__(self, most_bytes: float, size: Callable[[Value], int]):
        self.most_bytes, self.size = most_bytes, size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, key):
        return key in self._values

    def get(self, key, make: Callable[[], Value]) -> Value:
        """The value of a key, made where it is not there; two threads may make it at the same time."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > 1 and sum(map(self.size, self._values.values())) > self.most_bytes:
                self._values.popitem(last=False)
        return value
