"""A Redis Stream: each entry is a partition, see `bcmdist.data.entries`.

Entries are read in the order of their ids, from the offset in the model's own commit: what the server remembers of
earlier readers decides nothing. Several ingesters of one model directory share the work by claims (`claims`): an entry
that another one works on is deferred, and the offset stays before it until it is delivered here too, or known to be
committed. Entries are never deleted here.
"""

import math
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bcmdist.data.dataset import COMPANIONS, Dataset, entry_data
from bcmdist.data.entries import shape_of
from bcmdist.data.partition import Partition
from bcmdist.data.redis import ENTRY, patiently, redis_errors, redis_stream
from bcmdist.data.schema import UNNAMED, Schema, warn_of_columns
from bcmdist.data.sources.claims import Claims
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.stream_state import Offset, StreamState, following, order, position_of
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, MissingChunk, UnsafeData
from bcmdist.storage.ledger import named_range

# Seconds after which an entry that was not acknowledged is taken from its consumer.
IDLE_SECONDS = 30.0

# Entries that are asked for in one go: with their rows they pass through memory.
AT_ONCE = 64

# Entries that may be deferred at a time: as many are read again after a crash.
MOST_DEFERRED = 1000

# Seconds between two looks whether a stream without new entries is still the same.
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Deferred:
    """An entry that another ingester works on, or has worked on."""

    id: str
    before: Offset
    """all up to here was delivered, as far as no earlier one is deferred"""
    since: float
    """when it was deferred, by `time.monotonic`"""


class RedisStream:
    """Entries of one stream.

    Retries, duplicates and loss: a read may be repeated from any offset; the same entry comes again after a restart,
    where another ingester is slow, or where claims are lost. Entries that are trimmed before they are read, and a
    stream that is made again, are reported.

    Parameters
    ----------
    watch : entries may be left to others, whose claims expire after `idle_seconds`; else all are delivered
    offsets : where the newest commit of the model reads on, by the name of a source
    ledger : keys of the partitions that are in it
    """

    def __init__(
        self,
        url,
        *,
        x,
        y,
        group,
        schema=UNNAMED,
        consumer=None,
        idle_seconds=IDLE_SECONDS,
        watch=True,
        offsets: Mapping[str, Any] | None = None,
        ledger: Iterable[str] = (),
    ):
        self.place = redis_stream(url)
        self.name = self.place.url
        self.x, self.y, self.schema, self.watch = x, y, schema, watch
        if not 0 <= idle_seconds < math.inf:
            raise InvalidOption(f"--take-over: expected a number of seconds, got {idle_seconds}; correct it")
        self.idle_seconds = idle_seconds
        self.claims = Claims(self.place, group, consumer)
        self._begun = False
        self._offset: Any = None
        """of the last delivery"""
        self._furthest = Offset()
        """all entries up to here were looked at: delivered, or deferred"""
        self._deferred: list[Deferred] = []
        """in the order of their ids"""
        self._looked_at = -math.inf
        """when it was last looked whether the stream is the same"""
        self._warned_of: set[tuple[str, ...]] = set()
        """columns of which was warned"""
        self._read_before = Offset.of((offsets or {}).get(self.name))
        """what was read by whoever made the newest commit"""
        self._committed: dict[str, int] = {}
        """rows of later entries that are in the ledger, by id"""
        self._note_committed(ledger, self._read_before)

    # --- Reading ---

    def read(self, after, most) -> list[Delivery]:
        if not self._begun or after != self._offset:
            self._begin(after)
        self._deferred = [one for one in self._deferred if one.id not in self._committed]
        found = self._late(most) if self._is_overdue() else []
        found = found or self._fresh(most) or self._late(most)
        if found:
            self._offset = found[-1].offset
        return found

    def _begin(self, after):
        self._begun, self._offset, self._furthest, self._deferred = True, after, Offset.of(after), []
        self._look(self._base)

    def _is_overdue(self):
        """Whether deferred entries go first: they have waited for long, or are many."""
        waited = self._deferred and time.monotonic() - self._deferred[0].since >= self.idle_seconds
        return waited or len(self._deferred) >= MOST_DEFERRED

    def _fresh(self, most):
        """Deliveries of entries that were not looked at yet; those that others claim, or did before, are deferred."""
        found: list[Delivery] = []
        while not found and len(self._deferred) < MOST_DEFERRED:
            entries = self._entries(following(self._furthest.id), min(most, AT_ONCE))
            if not entries:
                if time.monotonic() - self._looked_at >= LOOK_SECONDS:
                    self._look(self._furthest)
                return []
            if not self._is_counted_anew(entries[0]):
                found = self._lost_before(entries[0]) or self._new(entries)
        return found

    def _new(self, entries):
        claimed = order(self.claims.newest())
        unclaimed = [number for number, _ in entries if order(number) > claimed and number not in self._committed]
        ours, found = self.claims.take(unclaimed, self._idle_ms), []
        for number, fields in entries:
            before = self._furthest
            position = position_of(fields)
            self._furthest = Offset(number, before.position if position is None else position)
            if number in ours:
                found.append(Delivery((self._part(number, fields),), self._read_to(), position))
            elif number not in self._committed:
                self._deferred.append(Deferred(number, before, time.monotonic()))
        self._committed = {number: rows for number, rows in self._committed.items() if self._is_ahead(number)}
        return found

    def _is_ahead(self, number):
        return order(number) > _order(self._furthest) or any(one.id == number for one in self._deferred)

    def _late(self, most):
        """Deliveries of deferred entries that nobody works on now."""
        ids = [one.id for one in self._deferred]
        chosen = self.claims.free(ids, self._idle_ms)[:most]
        idle_ms = self._idle_ms
        if not chosen and not self.watch:
            chosen, idle_ms = ids[:most], 0
        ours, found = self.claims.take(chosen, idle_ms), []
        for number, fields in zip(chosen, self._fields(chosen), strict=True):
            if number in ours or fields is None:
                self._deferred = [one for one in self._deferred if one.id != number]
                part = self._part(number, fields)
                found.append(Delivery((part,), self._read_to(), position_of(fields or {})))
        return found

    def _read_to(self):
        """The offset up to which all was delivered, JSON-ready."""
        return (self._deferred[0].before if self._deferred else self._furthest).to_json()

    @property
    def _idle_ms(self):
        return round(1000 * self.idle_seconds)

    # --- Entries that are gone ---

    def _gap(self, first) -> int:
        """Rows that were published after what was read, and before the first entry that follows; 0 where nobody knows.

        Negative where rows are counted again.
        """
        number, fields = first
        base, position = self._base, position_of(fields)
        read = 0 if base == Offset() else base.position
        if read is None or position is None or order(number) <= _order(base):
            return 0
        rows = self._part(number, fields).rows
        return position - rows - read if rows else 0

    @property
    def _base(self):
        """Up to where this stream was read, here or by whoever made the newest commit."""
        return max(self._furthest, self._read_before, key=_order)

    def _is_counted_anew(self, first):
        gap = self._gap(first)
        if gap < 0:
            position = self._base.position
            self._read_anew(f"{self.name}: expected rows to be counted from {position} on, found {position + gap}")
        return gap < 0

    def _lost_before(self, first) -> list[Delivery]:
        """A report of rows before the first entry that follows, which were trimmed and never read.

        A model that has read nothing of the stream begins with what is there, and warns.
        """
        (number, _), gap, base = first, self._gap(first), self._base
        lost = gap - sum(n for other, n in self._committed.items() if _order(base) < order(other) < order(number))
        if lost <= 0 or self._entries("-", 1)[0][0] != number:  # who deletes one entry alone means to
            return []
        self._furthest = self._read_before = replace(base, position=(base.position or 0) + gap)
        if base == Offset():
            text = (
                f"{self.name}: it begins with {number}, {lost} rows before are gone; publish them again if they matter"
            )
            warnings.warn(BcmdistWarning(text), stacklevel=2)
            return []
        error = MissingChunk(
            f"{self.name}: expected the entries after {base.id} to be kept until they are read, {lost} rows before "
            f"{number} are gone; publish them again, or go on without them (--on-error skip), and trim later"
        )
        return [Delivery((), self._read_to(), bad=(f"{self.name}[{base.id}..{number}]", error))]

    def _look(self, after: Offset):
        """Whether the stream is still the one that was read up to an offset."""
        self._looked_at = time.monotonic()
        if after == Offset():
            return
        state = self._state()
        if state is None or order(state.newest_id) < order(after.id):
            found = "there is none" if state is None else f"its newest is {state.newest_id}"
            self._read_anew(f"{self.name}: expected a stream with entries up to {after.id}, {found}")

    def _read_anew(self, found):
        text = f"{found}: it was removed or made again; it is read from its beginning, what was not read before is lost"
        warnings.warn(BcmdistWarning(text), stacklevel=2)
        self._furthest, self._read_before, self._deferred, self._committed = Offset(), Offset(), [], {}

    # --- Partitions ---

    def _part(self, number, fields):
        """Partition of an entry; without rows where it cannot be read, without inputs where it has not those of the
        model: whoever reads it raises the error."""
        url = f"{self.name}[{number}]"
        data = Dataset(url, self.x, self.y, 0, 0, 0, ())
        try:
            shape = shape_of(fields, url, self.x, self.y, COMPANIONS)
            data = replace(data, rows=shape.rows, chunk_rows=shape.rows)
            data = entry_data(url, self.x, self.y, shape, self.schema)
            self._warn(shape)
        except (InvalidData, MissingChunk, UnsafeData):
            pass
        return Partition(data, 0, data.rows)

    def _warn(self, shape):
        """Warn of columns that are not used, and of what has no names, once."""
        if (*shape.columns, *shape.unused) in self._warned_of:
            return
        self._warned_of.add((*shape.columns, *shape.unused))
        if shape.unused:
            names = ", ".join(map(repr, shape.unused))
            text = f"{self.name}: {names} not used, of a type that is no number; publish numbers"
            warnings.warn(BcmdistWarning(text), stacklevel=2)
        warn_of_columns(Schema(shape.columns), self.schema, self.name)
        if self.schema.classes:
            names = ", ".join(map(repr, self.schema.classes))
            text = f"{self.name}: numbers in {self.y} are taken for the classes {names}, from 0 on"
            warnings.warn(BcmdistWarning(text), stacklevel=2)

    # --- What is committed, and what waits ---

    def ack(self, offset, keys) -> None:
        # By key only: earlier entries may be in progress.
        self.claims.release(self._note_committed(keys, self._furthest))

    def _note_committed(self, keys, after: Offset) -> list[str]:
        """Ids of the entries of this stream that `keys` name; of those that are still to be read it is remembered."""
        ids = []
        deferred = {one.id for one in self._deferred}
        for key in keys:
            entry = ENTRY.match(key)
            if entry and entry["stream"] == self.name:
                ids.append(entry["id"])
                if entry["id"] in deferred or order(entry["id"]) > _order(after):
                    _, start, stop = named_range(key)
                    self._committed[entry["id"]] = stop - start
        return ids

    def lag(self, after) -> int | None:
        state = self._state()
        if state is None:
            return 0
        if not self._begun or after != self._offset:
            return state.waiting(Offset.of(after))
        waiting = state.waiting(self._furthest)
        return None if waiting is None else waiting + len(self._deferred)

    def close(self) -> None:
        """Let go of claims, and of the connection."""
        self.claims.close()

    # --- The server ---

    def _entries(self, first, count) -> list[tuple[str, dict]]:
        found = patiently(self.place, lambda client: client.xrange(self.place.stream, first, "+", count))
        return [(number.decode(), fields) for number, fields in found]

    def _fields(self, ids) -> list[dict | None]:
        """Fields of entries; None of one that is gone."""

        def ask(client):
            with client.pipeline(transaction=False) as pipe:
                for number in ids:
                    pipe.xrange(self.place.stream, number, number)
                return pipe.execute()

        return [found[0][1] if found else None for found in patiently(self.place, ask)] if ids else []

    def _state(self) -> StreamState | None:
        """How the stream stands; None where there is none."""

        def ask(client):
            try:
                return client.xinfo_stream(self.place.stream)
            except redis_errors().ResponseError as error:
                if "no such key" not in str(error):
                    raise
                return None

        answer = patiently(self.place, ask)
        return None if answer is None else StreamState.of(answer)


def _order(offset: Offset):
    return order(offset.id)
