"""Positions in a Redis Stream: offsets, the order of ids, and the state that the server reports.

Claims divide the entries between several ingesters of one model. A claim is a pending entry of a consumer group named
after the model. It only decides which ingester of a model directory processes an entry first. Claims may be lost, or be
held by a copy of the model: then some work is done twice, and the ledger still counts each entry once.
"""

import os
import re
import socket
import uuid
from dataclasses import dataclass
from typing import Any

from bcmdist.data.redis import RedisStream, connect, patiently, redis_errors
from bcmdist.errors import ModelDamaged

# Claims that one command lists at most; more than are ever in progress.
MOST_CLAIMS = 100_000


class Claims:
    """Claims of one consumer.

    Retries, duplicates and loss: every method may be repeated; if the response to a claim is lost, the next call finds
    the claim.
    """

    def __init__(self, place: RedisStream, group: str, consumer: str | None):
        self.place, self.group = place, group
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._errors = redis_errors()

    def newest(self) -> str:
        """Return the largest id ever claimed in the group."""
        groups = self._command(lambda client: client.xinfo_groups(self.place.stream)) or []
        ours = (group["last-delivered-id"] for group in groups if group["name"] == self.group.encode())
        return next(ours, b"0-0").decode()

    def free(self, ids: list[str], idle_ms: int) -> list[str]:
        """Return the `ids` (ascending) that no other consumer has claimed within the last `idle_ms` milliseconds."""
        taken = {number for number, line in self._lines(ids).items() if self._is_of_others(line, idle_ms)}
        return [number for number in ids if number not in taken]

    def _is_of_others(self, line, idle_ms):
        return line["consumer"] != self.consumer.encode() and line["time_since_delivered"] < idle_ms

    def take(self, ids: list[str], idle_ms: int) -> set[str]:
        """Claim the `ids` (ascending) that no other consumer has claimed within the last `idle_ms` milliseconds; return
        the ids that this consumer now holds."""
        if not ids:
            return set()
        words = ("XCLAIM", self.place.stream, self.group, self.consumer, idle_ms, *ids)
        words += ("FORCE", "JUSTID", "LASTID", ids[-1])  # redis-py's xclaim lacks LASTID
        self._command(lambda client: client.execute_command(*words, parse_justid=True), make=True)
        ours = self.consumer.encode()
        return {number for number, line in self._lines(ids).items() if line["consumer"] == ours}.intersection(ids)

    def release(self, ids: list[str]) -> None:
        """Release the claims on entries that were committed."""
        for first in range(0, len(ids), 1000):
            some = ids[first : first + 1000]
            self._command(lambda client, some=some: client.xack(self.place.stream, self.group, *some))

    def trim(self, last: str) -> None:
        """Remove the entries up to the id `last` that no other consumer group has still to read or to acknowledge.

        May be repeated. A group that is made later, and readers without a group, do not find these entries.
        """
        first = following(last)
        for group in self._command(lambda client: client.xinfo_groups(self.place.stream)) or []:
            if group["name"] != self.group.encode():
                name = group["name"]
                pending = self._command(lambda client, name=name: client.xpending(self.place.stream, name))
                kept = (pending["min"] or b"").decode() or following(group["last-delivered-id"].decode())
                first = min(first, kept, key=order)
        self._command(lambda client: client.xtrim(self.place.stream, minid=first, approximate=False))

    def close(self) -> None:
        """Leave the group, unless entries are claimed: deleting a consumer would delete its claims."""
        client = connect(self.place.server)
        try:
            if not client.xpending_range(self.place.stream, self.group, "-", "+", 1, self.consumer):
                client.xgroup_delconsumer(self.place.stream, self.group, self.consumer)
        except self._errors.RedisError:
            pass
        client.connection_pool.disconnect(inuse_connections=False)  # other threads of this process share the client

    def _lines(self, ids):
        """Return the claims of all consumers between the first and the last of `ids`, by id."""
        if not ids:
            return {}
        ask = (self.place.stream, self.group, ids[0], ids[-1], MOST_CLAIMS)
        lines = self._command(lambda client: client.xpending_range(*ask)) or []
        return {line["message_id"].decode(): line for line in lines}

    def _command(self, ask, *, make=False):
        """Return the server's response; None if the group does not exist. With `make` the group is created first."""

        def attempt(client):
            try:
                return ask(client)
            except self._errors.ResponseError as error:
                if not str(error).startswith(("NOGROUP", "no such key")):
                    raise
                if not make:
                    return None
                self._make_group(client)
                return ask(client)

        return patiently(self.place, attempt)

    def _make_group(self, client):
        try:
            client.xgroup_create(self.place.stream, self.group, id="0", mkstream=True)
        except self._errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # another process created it
                raise


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
