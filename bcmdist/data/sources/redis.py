"""A Redis Stream read by a consumer group: each entry is a partition, see `bcmdist.data.entries`.

Consumers of a group share its entries; one model, one group. An entry is pending from when a consumer was given it
until it is acknowledged, after the commit: those of a consumer that died are taken over when they have been idle for a
while, and our own are found again after a lost connection. Entries are never deleted here. Where the group is gone it
is made anew from the first entry, and the ledger knows what was heard.
"""

import math
import os
import socket
import uuid
import warnings
from dataclasses import replace

from bcmdist.data.dataset import COMPANIONS, Dataset, entry_data
from bcmdist.data.entries import shape_of
from bcmdist.data.partition import Partition
from bcmdist.data.redis import ENTRY, connect, patiently, place_of, redis_errors
from bcmdist.data.schema import UNNAMED, Schema, warn_of_columns
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, MissingChunk, UnsafeData

# Seconds after which an entry that was not acknowledged is taken from its consumer.
IDLE_SECONDS = 30.0

# Entries that are asked for in one go: with their rows they pass through memory.
AT_ONCE = 64


class RedisStream:
    """Entries of one stream, for one consumer of a group.

    Retries, duplicates and loss: a read whose answer is lost leaves entries pending for us, which the next read finds;
    entries come twice where a consumer is slow or the group was made anew. `ack` may be repeated.
    """

    def __init__(self, url, *, x, y, group, schema=UNNAMED, consumer=None, idle_seconds=IDLE_SECONDS):
        self.place = place_of(url)
        self.name = self.place.url
        self.x, self.y, self.schema, self.group = x, y, schema, group
        self.consumer = consumer or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        if not 0 <= idle_seconds < math.inf:
            raise InvalidOption(f"--take-over: expected a number of seconds, got {idle_seconds}; correct it")
        self.idle_seconds = idle_seconds
        self._errors = redis_errors()
        self._ours: dict[str, tuple[Partition, int | None] | None] = {}
        """entries pending for us by id, with partition and position as soon as they were looked at"""
        self._given: set[str] = set()
        """those of them that were delivered by this object"""
        self._furthest = (0, 0)
        """the latest of these"""
        self._told: set[tuple[str, ...]] = set()
        """columns that were spoken of"""
        self._found = False
        """whether `_ours` holds all that the server has noted as ours"""

    def read(self, after, most) -> list[Delivery]:
        if not self._found:
            self._find_ours()
        self._take_over()
        missing = most - len(self._waiting(after))
        if missing > 0:
            self._take_new(min(missing, AT_ONCE))
        numbers = self._waiting(after)[:most]
        self._look_at([number for number in numbers if self._ours[number] is None])
        return [self._deliver(number, max(after or "0-0", number, key=_order)) for number in numbers]

    def _deliver(self, number, offset):
        self._given.add(number)
        self._furthest = max(self._furthest, _order(number))
        looked_at = self._ours[number]
        assert looked_at is not None, "by read, just before"
        part, position = looked_at
        return Delivery((part,), offset, position)

    def _waiting(self, after):
        """Ids to deliver, in order: those later than `after`, and those before it that never were (late ones)."""
        first = _order(after or "0-0")
        waiting = set(self._ours) - self._given
        if first < self._furthest:
            waiting |= {number for number in self._given if _order(number) > first}
        return sorted(waiting, key=_order)

    def _find_ours(self):
        """Note entries that this consumer was given before it, or its connection, was cut off."""
        last = "-"
        self._found = True
        while lines := self._pending(last, 1000, consumername=self.consumer):
            for number in lines:
                self._ours.setdefault(number, None)
            last = f"({lines[-1]}"

    def _take_over(self):
        """Make entries ours that nobody, or we ourselves, acknowledged for long: XAUTOCLAIM, but told what is gone."""
        idle = round(1000 * self.idle_seconds)
        numbers = self._pending("-", AT_ONCE, idle=idle)
        if numbers:
            self._command(
                lambda client: client.xclaim(self.place.stream, self.group, self.consumer, idle, numbers, justid=True)
            )
        for number in numbers:  # also those that are gone, which the claim leaves out: whoever reads them says so
            self._ours.setdefault(number, None)

    def _take_new(self, count):
        """Make up to `count` entries ours that no consumer was given."""
        reply = self._command(
            lambda client: client.xreadgroup(self.group, self.consumer, {self.place.stream: ">"}, count=count)
        )
        streams = reply.values() if isinstance(reply, dict) else [entries for _, entries in reply or []]
        for entries in streams:
            for number, fields in entries:
                self._ours[number.decode()] = self._part(number.decode(), fields)

    def _look_at(self, numbers):
        """Partitions of entries of which only the id is known."""
        for number in numbers:
            entries = self._command(lambda client, number=number: client.xrange(self.place.stream, number, number))
            self._ours[number] = self._part(number, entries[0][1] if entries else None)

    def _part(self, number, fields):
        """Partition and position of an entry; without rows where it cannot be read, without inputs where it has not
        those of the model: whoever reads it is told."""
        url = f"{self.name}[{number}]"
        data = Dataset(url, self.x, self.y, 0, 0, 0, ())
        try:
            shape = shape_of(fields, url, self.x, self.y, COMPANIONS)
            data = replace(data, rows=shape.rows, chunk_rows=shape.rows)
            data = entry_data(url, self.x, self.y, shape, self.schema)
            self._tell(shape)
        except (InvalidData, MissingChunk, UnsafeData):
            pass
        position = (fields or {}).get(b"position", b"")
        return Partition(data, 0, data.rows), int(position) if position.isdigit() else None

    def _tell(self, shape):
        """Warn of columns that are not used, and of what has no names, once."""
        if (*shape.columns, *shape.unused) in self._told:
            return
        self._told.add((*shape.columns, *shape.unused))
        if shape.unused:
            names = ", ".join(map(repr, shape.unused))
            text = f"{self.name}: {names} not used, of a type that is no number; publish numbers"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        warn_of_columns(Schema(shape.columns), self.schema, self.name)
        if self.schema.classes:
            names = ", ".join(map(repr, self.schema.classes))
            text = f"{self.name}: numbers in {self.y} are taken for the classes {names}, from 0 on"
            warnings.warn(BcmdistWarning(text), stacklevel=2)

    def ack(self, offset, keys) -> None:
        # By key only: entries up to `offset` that came late may be on their way.
        entries = (ENTRY.match(key) for key in keys)
        numbers = [entry["id"] for entry in entries if entry and entry["stream"] == self.name]
        for first in range(0, len(numbers), 1000):
            some = numbers[first : first + 1000]
            self._command(lambda client, some=some: client.xack(self.place.stream, self.group, *some))
        for number in numbers:
            self._ours.pop(number, None)
            self._given.discard(number)

    def lag(self, after) -> int | None:
        groups = self._command(lambda client: client.xinfo_groups(self.place.stream))
        ours: dict = next((group for group in groups if group["name"] == self.group.encode()), {})
        new = ours.get("lag")  # since Redis 7
        given = sum(_order(number) <= _order(after or "0-0") for number in self._given)
        return None if new is None else new + ours["pending"] - given

    def close(self) -> None:
        """Leave the group, unless entries are pending for us: with a consumer its pending entries are forgotten."""
        client = connect(self.place.server)
        try:
            if not client.xpending_range(self.place.stream, self.group, "-", "+", 1, self.consumer):
                client.xgroup_delconsumer(self.place.stream, self.group, self.consumer)
        except self._errors.RedisError:
            pass
        client.close()

    def _pending(self, first, count, **which):
        """Ids of pending entries from `first` on."""
        ask = (self.place.stream, self.group, first, "+", count)
        lines = self._command(lambda client: client.xpending_range(*ask, **which))
        return [line["message_id"].decode() for line in lines]

    def _command(self, ask):
        """What the server answers, patiently; the group is made where it is not there."""

        def attempt(client):
            try:
                return ask(client)
            except (self._errors.ConnectionError, self._errors.TimeoutError):
                self._found = False  # it may have been done, and the answer lost
                raise
            except self._errors.ResponseError as error:
                if not str(error).startswith(("NOGROUP", "no such key")):
                    raise
                self._make_group(client)
                return ask(client)

        return patiently(self.place, attempt)

    def _make_group(self, client):
        try:
            client.xgroup_create(self.place.stream, self.group, id="0", mkstream=True)
        except self._errors.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):  # somebody else made it
                raise


def _order(number):
    """The two numbers of an id."""
    return tuple(map(int, number.split("-")))
