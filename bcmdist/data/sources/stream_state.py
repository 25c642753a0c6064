"""Positions in a Redis Stream: offsets, the order of ids, and the state that the server reports."""

import re
from dataclasses import dataclass
from typing import Any

from bcmdist.errors import ModelDamaged

ID = re.compile(r"\d{1,20}-\d{1,20}")
LARGEST = 2**64 - 1  # largest second number of an id


@dataclass(frozen=True)
class Offset:
    """Position at which to continue reading: all entries up to an id were delivered."""

    id: str = "0-0"
    position: int | None = None
    """rows published up to this id; None if entries do not count rows"""

    @classmethod
    def of(cls, value: Any) -> "Offset":
        """Parse the offset in a commit; before version 0.1 an id alone. None gives the start.

        Raises
        ------
        ModelDamaged
        """
        if value is None:
            return cls()
        fields = value if isinstance(value, dict) else {"id": value, "position": None}
        number, position = fields.get("id"), fields.get("position")
        if not isinstance(number, str) or not ID.fullmatch(number) or not isinstance(position, int | None):
            raise ModelDamaged(
                f"offset: expected an id of a stream and a number of rows, got {str(value)[:80]!r}; restore the model "
                "from a copy"
            )
        return cls(number, position)

    def to_json(self) -> dict | None:
        """Return the offset as JSON; None at the start."""
        return None if self == Offset() else {"id": self.id, "position": self.position}


def order(number: str) -> tuple[int, ...]:
    """Return the two numbers of an id, whose order is the order of entries."""
    return tuple(map(int, number.split("-")))


def following(number: str) -> str:
    """Return the smallest id after another one."""
    first, second = order(number)
    return f"{first}-{second + 1}" if second < LARGEST else f"{first + 1}-0"


def position_of(fields: dict) -> int | None:
    """Return the number of rows published up to the end of an entry; None if the entry lacks it."""
    position = fields.get(b"position", b"")
    return int(position) if position.isdigit() else None


@dataclass(frozen=True)
class StreamState:
    """State of a stream, from XINFO STREAM."""

    entries: int
    newest_id: str
    """largest id ever assigned, even if that entry was deleted"""
    first: Offset
    last: Offset

    @classmethod
    def of(cls, answer: dict) -> "StreamState":
        """Parse the response of XINFO STREAM, from any server version."""
        first, last = (_end(answer[name]) for name in ("first-entry", "last-entry"))
        return cls(answer["length"], answer["last-generated-id"].decode(), first, last)

    def waiting(self, after: Offset) -> int | None:
        """Estimate the number of entries after an offset, assuming equal rows per entry; None if not possible."""
        if not self.entries or order(self.last.id) <= order(after.id):
            return 0
        if order(after.id) < order(self.first.id):
            return self.entries
        first, read, last = self.first.position, after.position, self.last.position
        if first is None or read is None or last is None or not first <= read <= last or first == last:
            return None
        return max(1, round((last - read) / (last - first) * (self.entries - 1)))


def _end(entry):
    """Return the offset of the first or last entry; the start if the stream is empty."""
    return Offset(entry[0].decode(), position_of(entry[1])) if entry else Offset()
