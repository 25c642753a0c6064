"""A model that is served: its newest state, replaced while requests go on, and the rows that it is to hear.

Who asks keeps the state that he began with until he has his answer; it is let go when the last one has. So a newer
commit, our own or that of another process, drops no request.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

from bcmdist.app.service.inbox import Inbox
from bcmdist.app.service.loaded import Loaded, hold, load
from bcmdist.app.service.writer import Writer
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.storage.commits import open_store

log = logging.getLogger("bcmdist.app.service")


class Waiting:
    """The rows of some requests as a source: each is delivered once; whoever dies is asked by their senders again."""

    def __init__(self, name: str, parts: list[Partition]):
        self.name, self.parts = name, list(parts)

    def read(self, after, most) -> list[Delivery]:
        """The next ones; nobody reads on from an offset."""
        taken, self.parts = self.parts[:most], self.parts[most:]
        return [Delivery((part,), None) for part in taken]

    def ack(self, offset, keys) -> None:
        """Their senders are told."""

    def lag(self, after) -> None:
        """The writer knows."""

    def close(self) -> None:
        """Nothing is open."""


class Served:
    """A model directory that is served under a name; any thread may ask."""

    def __init__(self, name: str, url: str, rows_url: str):
        self.name, self.url = name, url
        self._lock, self._changing = threading.Lock(), threading.Lock()
        self._users: dict[Loaded, int] = {}
        """requests that go on, by the state they began with"""
        self._newest = load(url)
        self._users[self._newest] = 1  # ourselves
        self.inbox = Inbox(rows_url)
        self.writer = Writer(name, self._hear)
        self.heard_at = time.time()
        """when its state was last replaced, in seconds since the epoch"""

    @contextlib.contextmanager
    def using(self) -> Iterator[Loaded]:
        """The newest state, which stays open meanwhile."""
        with self._lock:
            loaded = self._newest
            self._users[loaded] += 1
        try:
            yield loaded
        finally:
            self._leave(loaded)

    def _leave(self, loaded):
        with self._lock:
            self._users[loaded] -= 1
            left = self._users[loaded]
            if not left:
                del self._users[loaded]
        if not left:
            loaded.close()

    def _take(self, loaded):
        """Serve another state from now on, unless it is an older one."""
        with self._lock:
            before, older = self._newest, _number(loaded) < _number(self._newest)
            if not older:
                self._newest, self._users[loaded], self.heard_at = loaded, 1, time.time()
        if older:
            loaded.close()
        else:
            self._leave(before)

    def behind(self) -> tuple[int, float]:
        """Rows of requests and, by the newest commit, of sources, that wait, and seconds that the oldest of them do."""
        with self.using() as loaded:
            known = loaded.lag.values()
        rows = self.writer.waiting + sum(one["rows"] for one in known)
        return rows, max([self.writer.behind, *(one["seconds"] for one in known)])

    def renew(self) -> bool:
        """Load what is the newest commit by now; whether there was another.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch, StorageUnreachable
        """
        if not self._changing.acquire(blocking=False):  # a commit of ours is on its way, and is taken then
            return False
        try:
            with self.using() as loaded:
                number = _number(loaded)
            if not number or open_store(self.url).head() <= number:
                return False
            self._take(load(self.url))
            return True
        finally:
            self._changing.release()

    def submit(self, key: str, X, y, **companions) -> tuple[dict, bool, Future]:
        """Keep the rows of a request, and let the model hear them.

        Returns
        -------
        What is said of them, the same for the same request; whether it was answered before; and a future, which is done
        once they are committed.

        Raises
        ------
        InvalidOption, InvalidData, InvalidDtype, UnsupportedTarget, ChunkConflict, MemoryLimit
        """
        with self.using() as loaded:
            gbcm = loaded.committee
            received = self.inbox.receive(gbcm, key, X, y, **companions)
        if received.heard:
            done: Future = Future()
            done.set_result(None)
            return received.answer, True, done
        return received.answer, False, self.writer.submit(received)

    def _hear(self, requests) -> None:
        """Commit the rows of requests, those that are not in the ledger yet."""
        parts = list(dict.fromkeys(part for request in requests for part in request.parts))
        with self._changing, self.using() as loaded, SerialRuntime() as runtime:
            source, options = Waiting(self.inbox.url, parts), IngestOptions(same_rows="allow")
            try:
                after, _ = loaded.committee.ingest(source, options, runtime=runtime)
            except Exception as error:
                after = loaded.committee.newest()
                if not {part.key for part in parts} <= {entry.key for entry in after.ledger}:
                    raise
                log.warning("model %s has heard rows, what follows failed: %s", self.name, type(error).__name__)
            for request in requests:
                self.inbox.mark_heard(request)
            self._take(hold(after))

    def close(self) -> None:
        """Commit what waits, and let go of the model."""
        self.writer.close()
        self._leave(self._newest)


def _number(loaded):
    """Of a commit; 0 of a mixture, which never changes."""
    return int(loaded.state) if loaded.state.isdigit() else 0
