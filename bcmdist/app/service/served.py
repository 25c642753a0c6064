"""A model that is served: its newest state, replaced while requests go on, and the rows that it is to absorb.

Who asks keeps the state that he began with until he has his answer; it is let go when the last one has. So a newer
commit, our own or that of another process, drops no request.

The writer of a model: one thread that commits the rows of requests, those that wait for it together.

On retry a request stands in the queue twice, and counts once; a duplicate likewise; with the loss of the process the
queue is lost: nobody in it had an answer, so that its senders ask again.
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from bcmdist.api.gbcm import GBCM
from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import in_background
from bcmdist.app.service.inbox import Inbox, Received
from bcmdist.app.service.loaded import Loaded, hold, load, newest_version
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistError, CommitConflict, InvalidOption
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.storage.commits import open_store
from bcmdist.storage.heartbeats import BEAT_SECONDS, Heartbeat, heartbeats

# Requests that are committed together at most: as long as that may take, nobody else is committed.
MOST_TOGETHER = 64


class Writer:
    """Absorbs the rows of requests in their order.

    Parameters
    ----------
    absorb : commits the rows of some requests, all or some of them; called again with each of those alone that it fails
        with together, so that one does not spoil the others
    """

    def __init__(self, name: str, compute_messages: Callable[[Sequence[Received]], None]):
        self._hear = compute_messages
        self._queue: queue.SimpleQueue[tuple[Received, Future] | None] = queue.SimpleQueue()
        self._waiting: dict[Future, tuple[int, float]] = {}
        """rows of requests, and since when they wait, by the order in which they came"""
        self._lock, self._closed = threading.Lock(), False
        self._thread = in_background(self._run, f"writer of {name}")

    @property
    def waiting(self) -> int:
        """Rows that are not committed yet."""
        with self._lock:
            return sum(rows for rows, _ in self._waiting.values())

    @property
    def behind(self) -> float:
        """Seconds that the oldest of them wait."""
        with self._lock:
            begun = next((begun for _, begun in self._waiting.values()), None)
        return 0.0 if begun is None else time.monotonic() - begun

    def submit(self, request: Received) -> Future:
        """A future that is done once the rows are committed, or that fails as `compute_messages` does; `Refused` after
        `close`."""
        done: Future = Future()
        with self._lock:
            if self._closed:
                raise not_served()
            self._waiting[done] = request.rows, time.monotonic()
            self._queue.put((request, done))
        return done

    def close(self) -> None:
        """Commit what waits."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self):
        closing = False
        while not closing:
            batch = [self._queue.get()]
            while len(batch) < MOST_TOGETHER and not self._queue.empty():
                batch.append(self._queue.get())
            closing = None in batch
            self._commit([one for one in batch if one is not None])

    def _commit(self, batch):
        """Those of a batch together, else one by one."""
        if not batch:
            return
        try:
            self._hear([request for request, _ in batch])
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._commit([one])
                return
            failed: Exception | None = error
        else:
            failed = None
        for _, done in batch:
            with self._lock:
                del self._waiting[done]
            if failed is None:
                done.set_result(None)
            else:
                done.set_exception(failed)


def not_served() -> Refused:
    """The answer to who asked for a model that was let go of meanwhile."""
    text = "model: expected one that is served, it was removed or the service is ending; ask again, with the same key"
    return Refused(503, "Closing", text, Retry_After="5")


Answer = TypeVar("Answer")
TRIES = 3  # to commit rows, while others replace the model or what follows a commit fails
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
        self._committing = False
        self._users: dict[Loaded, int] = {}
        """requests that go on, by the state they began with"""
        self._newest = load(url)
        self._users[self._newest] = 1  # ourselves
        self.inbox = Inbox(rows_url)
        self.writer = Writer(name, self._absorb)
        self.heard_at = time.time()
        """when its state was last replaced, in seconds since the epoch"""
        self.ingesters: list[Heartbeat] = []
        """of each source with ingesters that were to wait for rows, the newest heartbeat"""
        self._looked_at = -math.inf
        """when heartbeats were last looked at, by `time.monotonic`"""
        self.look_at_ingesters()

    @contextlib.contextmanager
    def using(self) -> Iterator[Loaded]:
        """The newest state, which stays open meanwhile; `Refused` once it was let go of."""
        with self._lock:
            loaded = self._newest
            if loaded not in self._users:
                raise not_served()
            self._users[loaded] += 1
        try:
            yield loaded
        finally:
            self._leave(loaded)

    def ask(self, question: Callable[[Loaded], Answer]) -> Answer:
        """The answer of the newest state to a question; where it fails since another has taken its place, whose files
        are there now, the answer of that."""
        try:
            with self.using() as loaded:
                return question(loaded)
        except (BcmdistError, OSError):
            self.renew()
            with self.using() as newest:
                if newest.version == loaded.version:
                    raise
                return question(newest)

    def _leave(self, loaded):
        with self._lock:
            self._users[loaded] -= 1
            left = self._users[loaded]
            if not left:
                del self._users[loaded]
        if not left:
            loaded.close()

    def _take(self, loaded):
        """Serve another state from now on."""
        with self._lock:
            before = self._newest
            self._newest, self._users[loaded], self.heard_at = loaded, 1, time.time()
        self._leave(before)

    def behind(self) -> dict[str, float | None]:
        """Rows of requests and, by the newest commit, of sources, that wait, and seconds that the oldest of them do:
        `rows` and `seconds`, None where nobody knows, as when the ingester of a source is dead."""
        with self.using() as loaded:
            known = [one for one in loaded.lag.values() if one is not None]
            unknown = len(known) < len(loaded.lag) or self.dead_ingesters
        if unknown:
            return {"rows": None, "seconds": None}
        rows = self.writer.waiting + sum(one["rows"] for one in known)
        return {"rows": rows, "seconds": max([self.writer.behind, *(one["seconds"] for one in known)])}

    @property
    def dead_ingesters(self) -> int:
        """Sources whose ingesters were to wait for rows, and are dead."""
        return sum(not one.alive for one in self.ingesters)

    def look_at_ingesters(self) -> None:
        """Read their heartbeats, if that was some time ago."""
        if time.monotonic() - self._looked_at >= BEAT_SECONDS:
            self.ingesters = heartbeats(open_store(self.url))
            self._looked_at = time.monotonic()

    def renew(self) -> bool:
        """Load what is the newest state by now, also where it is that of another model; whether there was another.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch, StorageUnreachable
        """
        if not self._changing.acquire(blocking=not self._committing):  # the state of our own commit is taken after it
            return False
        try:
            return self._renewed()
        finally:
            self._changing.release()

    def _renewed(self):
        """As `renew`, of who keeps others from changing the state."""
        with self.using() as loaded:
            version = loaded.version
        if newest_version(self.url) == version:
            return False
        self._take(load(self.url))
        return True

    def submit(self, key: str, X, y, **companions) -> tuple[dict, bool, Future]:
        """Keep the rows of a request, and let the model absorb them.

        Returns
        -------
        What is said of them, the same for the same request; whether it was answered before; and a future, which is done
        once they are committed.

        Raises
        ------
        InvalidOption, InvalidData, InvalidDtype, UnsupportedTarget, ChunkConflict, MemoryLimit
        """
        self.renew()
        with self.using() as loaded:
            gbcm = loaded.committee
            received = self.inbox.receive(gbcm, key, X, y, **companions)
            snapshot = gbcm.snapshot
            replayed = received.absorbed and gbcm.store.descends(snapshot.identity, snapshot.commit, snapshot.digest)
        if replayed:
            done: Future = Future()
            done.set_result(None)
            return received.answer, True, done
        return received.answer, False, self.writer.submit(received)

    def _absorb(self, requests) -> None:
        """Commit the rows of requests, those that are not in the ledger yet.

        Raises
        ------
        CommitConflict
            Another model has taken the place of the one that they were sent to.
        """
        with self._changing, self._commits_now():
            self._renewed()
            for left in reversed(range(TRIES)):
                try:
                    self._committed(requests)
                    break
                except Exception as error:
                    if not left or not self._renewed():  # the same would fail again
                        raise
                    log.warning(
                        "model %s: absorbing rows failed, its newest state is tried: %s",
                        self.name,
                        type(error).__name__,
                    )

    @contextlib.contextmanager
    def _commits_now(self):
        """Say to those who would renew the state that a commit of ours does."""
        self._committing = True
        try:
            yield
        finally:
            self._committing = False

    def _committed(self, requests):
        with self.using() as loaded, SerialRuntime() as runtime:
            gbcm = loaded.committee
            refuse_other_model(gbcm, requests)
            parts = [part for request in requests for part in request.parts if part.key not in gbcm.snapshot.absorbed]
            if not parts:
                return
            source, options = Waiting(self.inbox.url, list(dict.fromkeys(parts))), IngestOptions(same_rows="allow")
            after, _ = gbcm.ingest(source, options, runtime=runtime)
            self._take(hold(after))

    def sweep(self, days: float) -> int:
        """Remove kept rows that the model does not need, as `Inbox.sweep`; how many files."""
        with self.using() as loaded:
            try:
                gbcm = loaded.committee
            except InvalidOption:  # a mixture, which absorbs no rows
                return 0
            return self.inbox.sweep(gbcm, days)

    def close(self) -> None:
        """Commit what waits, and let go of the model."""
        self.writer.close()
        self._leave(self._newest)


def refuse_other_model(gbcm: GBCM, requests: Iterable[Received]) -> None:
    """Raise `CommitConflict` where rows were sent to another model."""
    if any(request.identity != gbcm.snapshot.identity for request in requests):
        raise CommitConflict(
            f"{gbcm.url}: expected the model that rows were sent to, another one has taken its place; send them again"
        )
