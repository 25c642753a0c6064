"""Places in a Redis Stream: offsets, ids in their order, and what a stream says of itself."""

import re
from dataclasses import dataclass
from typing import Any

from bcmdist.errors import ModelDamaged

ID = re.compile(r"\d{1,20}-\d{1,20}")
LARGEST = 2**64 - 1  # second number of an id


@dataclass(frozen=True)
class Offset:
    """Where to read on: all entries up to an id were delivered."""

    id: str = "0-0"
    position: int | None = None
    """rows that were published up to it; None where no entry counts them"""

    @classmethod
    def of(cls, value: Any) -> "Offset":
        """The offset in a commit, also one of before 0.1, an id alone; the start where there is none.

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
        """JSON-ready; None at the start."""
        return None if self == Offset() else {"id": self.id, "position": self.position}


def order(number: str) -> tuple[int, ...]:
    """The two numbers of an id, which stand in the order of entries."""
    return tuple(map(int, number.split("-")))


def following(number: str) -> str:
    """The smallest id after another one."""
    first, second = order(number)
    return f"{first}-{second + 1}" if second < LARGEST else f"{first + 1}-0"


def position_of(fields: dict) -> int | None:
    """Rows that were published up to the end of an entry; None where it does not say."""
    position = fields.get(b"position", b"")
    return int(position) if position.isdigit() else None


@dataclass(frozen=True)
class StreamState:
    """How a stream stands, from XINFO STREAM."""

    entries: int
    newest_id: str
    """largest id ever given, also of an entry that is gone"""
    first: Offset
    last: Offset

    @classmethod
    def of(cls, answer: dict) -> "StreamState":
        """What a server of any version says."""
        first, last = (_end(answer[name]) for name in ("first-entry", "last-entry"))
        return cls(answer["length"], answer["last-generated-id"].decode(), first, last)

    def waiting(self, after: Offset) -> int | None:
        """Entries after an offset; as if all had the same number of rows; None where nothing counts these."""
        if not self.entries or order(self.last.id) <= order(after.id):
            return 0
        if order(after.id) < order(self.first.id):
            return self.entries
        first, read, last = self.first.position, after.position, self.last.position
        if first is None or read is None or last is None or not first <= read <= last or first == last:
            return None
        return max(1, round((last - read) / (last - first) * (self.entries - 1)))


def _end(entry):
    """Offset of the first or the last entry, of which there may be none."""
    return Offset(entry[0].decode(), position_of(entry[1])) if entry else Offset()
