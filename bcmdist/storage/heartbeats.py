"""Heartbeats: files that show which ingesters are running and waiting for rows.

    MODEL/ingesters/<random>-<number>    JSON: process, source, and the model directory it was written for

An ingester writes a new file every few seconds and removes the previous one; when it ends properly it removes the last
one. An ingester that is killed or fails leaves its file, which becomes stale; the next ingester of the same source
removes the file. Ages are differences between the reader's clock and the storage's clock. In a copy of a model
directory under another path the copied files are ignored.
"""

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bcmdist.errors import BcmdistError
from bcmdist.storage.blobs import canonical_json
from bcmdist.storage.leases import is_dead, read_holder, this_process

BEAT_SECONDS = 5.0
STALE_SECONDS = 30.0  # six heartbeats: a disk may be slow, and two clocks may differ by some seconds
FOLDER = "ingesters"


@dataclass(frozen=True)
class Heartbeat:
    """The newest heartbeat of a source's ingesters."""

    source: str
    """name of the source, a URL"""
    seconds: float
    """age of the heartbeat"""
    alive: bool
    """whether the heartbeat is recent, and its process not proven dead"""


def heartbeats(store) -> list[Heartbeat]:
    """Return one heartbeat per source, alive if possible and the newest; ingesters that ended properly have none."""
    best: dict[str, Heartbeat] = {}
    for _, found in _found(store):
        previous = best.get(found.source)
        if previous is None or (found.alive, -found.seconds) > (previous.alive, -previous.seconds):
            best[found.source] = found
    return sorted(best.values(), key=lambda one: one.source)


def sweep(store, source: str) -> None:
    """Remove the heartbeats of a source's dead ingesters."""
    for name, found in _found(store):
        if found.source == source and not found.alive:
            with contextlib.suppress(OSError):
                store.storage.remove(name)


@contextlib.contextmanager
def beating(store, source: str) -> Iterator[None]:
    """Write heartbeats for an ingester of `source` while the context is open; after an error the last one is kept.

    A failed write is skipped: it does not stop ingestion.
    """
    pulse = _Pulse(store, source)
    pulse.beat()
    sweep(store, source)
    thread = threading.Thread(target=pulse.run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        pulse.stop(thread)
        raise
    pulse.stop(thread)
    pulse.remove()


class _Pulse:
    """The heartbeat of one ingester."""

    def __init__(self, store, source):
        self._storage, self._id, self._beats = store.storage, uuid.uuid4().hex, 0
        content = {"model": store.storage.url, "source": source, "process": this_process()}
        self._text, self._last, self._ended = canonical_json(content), "", threading.Event()

    def beat(self):
        name = f"{FOLDER}/{self._id}-{self._beats:08d}"
        with contextlib.suppress(OSError, BcmdistError):  # the next write may succeed
            self._storage.put_own(name, self._text)
            before, self._last, self._beats = self._last, name, self._beats + 1
            if before:
                self._storage.remove(before)

    def run(self):
        while not self._ended.wait(BEAT_SECONDS):
            self.beat()

    def stop(self, thread):
        self._ended.set()
        thread.join()

    def remove(self):
        with contextlib.suppress(OSError, BcmdistError):
            if self._last:
                self._storage.remove(self._last)


def _found(store) -> Iterator[tuple[str, Heartbeat]]:
    """Yield names and heartbeats, including stale ones."""
    for last in store.storage.names(FOLDER):
        name = f"{FOLDER}/{last}"
        try:
            text, stored_at = store.storage.get(name), store.storage.stored_at(name)
        except FileNotFoundError:  # replaced by a newer file, or the ingester has ended
            continue
        content = _read(text)
        if content.get("model") == store.storage.url and isinstance(content.get("source"), str):
            seconds = max(0.0, time.time() - stored_at)
            holder = read_holder(canonical_json(content.get("process")))
            alive = seconds < STALE_SECONDS and not is_dead(holder)
            yield name, Heartbeat(content["source"], seconds, alive)


def _read(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
