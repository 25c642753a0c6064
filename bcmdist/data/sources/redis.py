"""A Redis Stream as a source: each entry is a partition, see `bcmdist.data.entries`.

Entries are read in the order of their ids, from the offset in the model's own commit; the server's record of earlier
readers is not used. Several ingesters of one model directory share the work by claims (`stream_state`). An entry that
another ingester is processing is deferred, and the offset stays before it until it is delivered here too, or has been
committed. This module never deletes entries.
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
from bcmdist.data.schema import UNNAMED
from bcmdist.data.sources.delivery import Delivery
from bcmdist.data.sources.entry_names import EntryNames
from bcmdist.data.sources.stream_state import Claims, Offset, StreamState, following, order, position_of
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, MissingChunk, UnsafeData
from bcmdist.storage.entry import named_range
from bcmdist.storage.ledger import EMPTY, Ledger

# Seconds after which an unacknowledged entry is taken over from its consumer.
IDLE_SECONDS = 30.0

# Entries requested at a time; they are held in memory with their rows.
AT_ONCE = 64

# Entries that may be deferred at a time; after a crash as many are read again.
MOST_DEFERRED = 1000

# Seconds between checks that a stream without new entries has not been replaced.
LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Deferred:
    """An entry that another ingester is processing or has processed."""

    id: str
    before: Offset
    """offset before the entry: everything up to here was delivered, unless an earlier entry is deferred"""
    since: float
    """time of deferral, by `time.monotonic`"""


class RedisStream:
    """Partitions from the entries of one stream.

    Retries, duplicates and loss: a read may be repeated from any offset. An entry is delivered again after a restart,
    if another ingester is slow, or if claims are lost. Entries that were trimmed before they were read, and a stream
    that was recreated, are reported.

    Parameters
    ----------
    watch : leave entries to other ingesters until their claims expire after `idle_seconds`; False: deliver all
    offsets : offsets in the newest commit of the model, by the name of a source
    ledger : the partitions that the model has absorbed
    trim : remove entries once they are committed (`Claims.trim`), as far as every consumer group has read them
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
        trim=False,
        offsets: Mapping[str, Any] | None = None,
        ledger: Ledger = EMPTY,
    ):
        self.place = redis_stream(url)
        self.name = self.place.url
        self.x, self.y, self.schema, self.watch, self.trim = x, y, schema, watch, trim
        if not 0 <= idle_seconds < math.inf:
            raise InvalidOption(f"--take-over: expected a number of seconds, got {idle_seconds}; correct it")
        self.idle_seconds = idle_seconds
        self.claims = Claims(self.place, group, consumer)
        self._begun = False
        self._offset: Any = None
        """offset of the last delivery"""
        self._furthest = Offset()
        """all entries up to here were delivered or deferred"""
        self._deferred: list[Deferred] = []
        """in ascending order of ids"""
        self._looked_at = -math.inf
        """time of the last check that the stream has not been replaced"""
        self._names = EntryNames(self.name, y, schema)
        self._read_before = Offset.of((offsets or {}).get(self.name))
        """offset in the newest commit, perhaps of another ingester"""
        self._committed: dict[str, int] = {}
        """rows of committed entries that were not read here yet or are deferred, by id"""
        stored = ledger.arrays(f"{self.name}[")
        self._note_committed((f"{array}[{start}:{stop}]" for array, start, stop in stored), self._read_before)

    # --- Reading ---

    def read(self, after: Any, most: int) -> list[Delivery]:
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
        """Return whether deferred entries go first: they have waited too long, or there are too many."""
        waited = self._deferred and time.monotonic() - self._deferred[0].since >= self.idle_seconds
        return waited or len(self._deferred) >= MOST_DEFERRED

    def _fresh(self, most):
        """Return deliveries of new entries; entries that others have or had claimed are deferred."""
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
        """Return deliveries of deferred entries that no other ingester is processing now."""
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
        """Return the offset up to which everything was delivered, JSON-ready."""
        return (self._deferred[0].before if self._deferred else self._furthest).to_json()

    @property
    def _idle_ms(self):
        return round(1000 * self.idle_seconds)

    # --- Entries that are gone ---

    def _gap(self, first) -> int:
        """Return the number of published rows between the last read entry and the entry `first`; 0 if unknown.

        Negative if the stream's row count was reset.
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
        """Offset up to which this stream was read, here or by the ingester of the newest commit."""
        return max(self._furthest, self._read_before, key=_order)

    def _is_counted_anew(self, first):
        gap = self._gap(first)
        if gap < 0:
            position = self._base.position
            self._read_anew(f"{self.name}: expected rows to be counted from {position} on, found {position + gap}")
        return gap < 0

    def _lost_before(self, first) -> list[Delivery]:
        """Return a report of rows before the next entry that were trimmed without having been read.

        If the model has read nothing of the stream, it starts at the first existing entry, with a warning.
        """
        (number, _), gap, base = first, self._gap(first), self._base
        lost = gap - sum(n for other, n in self._committed.items() if _order(base) < order(other) < order(number))
        if lost <= 0 or self._entries("-", 1)[0][0] != number:  # deleting a single entry is taken as intended
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
        """Check that the stream is still the one that was read up to an offset."""
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
        """Return the partition of an entry. It has no rows if the entry cannot be read, and no inputs if the entry
        lacks inputs of the model; reading such a partition raises the error."""
        url = f"{self.name}[{number}]"
        data = Dataset(url, self.x, self.y, 0, 0, 0, ())
        try:
            shape = shape_of(fields, url, self.x, self.y, COMPANIONS)
            data = replace(data, rows=shape.rows, chunk_rows=shape.rows)
            data = entry_data(url, self.x, self.y, shape, self.schema)
            self._names.warn(shape)
        except (InvalidData, MissingChunk, UnsafeData):
            pass
        return Partition(data, 0, data.rows)

    # --- Commits and lag ---

    def ack(self, offset: Any, keys: Iterable[str]) -> None:
        # By key only: earlier entries may still be in progress.
        self.claims.release(self._note_committed(keys, self._furthest))
        if self.trim and offset is not None:
            self.claims.trim(Offset.of(offset).id)

    def _note_committed(self, keys, after: Offset) -> list[str]:
        """Return the ids of this stream's entries among `keys`; remember the ids that are still to be read here."""
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

    def lag(self, after: Any) -> int | None:
        state = self._state()
        if state is None:
            return 0
        if not self._begun or after != self._offset:
            return state.waiting(Offset.of(after))
        waiting = state.waiting(self._furthest)
        return None if waiting is None else waiting + len(self._deferred)

    def close(self) -> None:
        """Release claims, and close the connection."""
        self.claims.close()

    # --- The server ---

    def _entries(self, first, count) -> list[tuple[str, dict]]:
        found = patiently(self.place, lambda client: client.xrange(self.place.stream, first, "+", count))
        return [(number.decode(), fields) for number, fields in found]

    def _fields(self, ids) -> list[dict | None]:
        """Return the fields of entries; None for an entry that no longer exists."""

        def ask(client):
            with client.pipeline(transaction=False) as pipe:
                for number in ids:
                    pipe.xrange(self.place.stream, number, number)
                return pipe.execute()

        return [found[0][1] if found else None for found in patiently(self.place, ask)] if ids else []

    def _state(self) -> StreamState | None:
        """Return the state of the stream; None if it does not exist."""

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
