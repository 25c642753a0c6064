"""The writer of a model: one thread that commits the rows of requests, those that wait for it together.

On retry a request stands in the queue twice, and counts once; a duplicate likewise; with the loss of the process the
queue is lost: nobody in it had an answer, so that its senders ask again.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import in_background
from bcmdist.app.service.inbox import Received

# Requests that are committed together at most: as long as that may take, nobody else is committed.
MOST_TOGETHER = 64


class Writer:
    """Hears the rows of requests in their order.

    Parameters
    ----------
    hear : commits the rows of some requests, all or some of them; called again with each of those alone that it fails
        with together, so that one does not spoil the others
    """

    def __init__(self, name: str, hear: Callable[[Sequence[Received]], None]):
        self._hear = hear
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
        """A future that is done once the rows are committed, or that fails as `hear` does; `Refused` after `close`."""
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
