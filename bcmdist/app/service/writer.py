"""The writer of a model: a thread that commits the rows of waiting requests together."""

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import in_background
from bcmdist.app.service.inbox import Received

# Requests in one commit, at most: later requests wait until it is done.
MOST_IN_BATCH = 64


class Writer:
    """Thread that absorbs the rows of requests in their order of arrival.

    Parameters
    ----------
    commit_rows : commits the rows of several requests, and returns for each whether that was done before; where it
        fails, it is called again with each request alone, so that a failing request does not affect the others
    report_waiting : called with the number of waiting rows and the arrival time of the oldest (epoch; inf if none),
        when these change
    """

    def __init__(
        self,
        name: str,
        commit_rows: Callable[[Sequence[Received]], list[bool]],
        report_waiting: Callable[[int, float], None],
    ):
        self._commit_rows, self._set_waiting = commit_rows, report_waiting
        self._queue: queue.SimpleQueue[tuple[Received, Future] | None] = queue.SimpleQueue()
        self._waiting: dict[Future, tuple[int, float]] = {}
        """number of rows and arrival time (epoch) of each waiting request, in order of arrival"""
        self._lock, self._closed = threading.Lock(), False
        self._report_waiting()
        self._thread = in_background(self._run, f"writer of {name}")

    def _report_waiting(self):
        oldest = next((begun for _, begun in self._waiting.values()), math.inf)
        self._set_waiting(sum(rows for rows, _ in self._waiting.values()), oldest)

    def submit(self, request: Received) -> Future:
        """Queue a request.

        Returns
        -------
        A future, done once the rows are committed, with whether that was before; it fails with the error of
        `commit_rows`.

        Raises
        ------
        Refused
            The writer is closed.
        """
        done: Future = Future()
        with self._lock:
            if self._closed:
                raise not_served()
            self._waiting[done] = request.rows, time.time()
            self._queue.put((request, done))
            self._report_waiting()
        return done

    def close(self) -> None:
        """Commit the waiting rows and end the thread."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self):
        closing = False
        while not closing:
            batch = [self._queue.get()]
            while len(batch) < MOST_IN_BATCH and not self._queue.empty():
                batch.append(self._queue.get())
            closing = None in batch
            self._commit([one for one in batch if one is not None])

    def _commit(self, batch):
        """Commit a batch together; if that fails, its requests one by one."""
        if not batch:
            return
        before: list[bool] = []
        try:
            before = self._commit_rows([request for request, _ in batch])
        except Exception as error:
            if len(batch) > 1:
                for one in batch:
                    self._commit([one])
                return
            failed: Exception | None = error
        else:
            failed = None
        with self._lock:
            for _, done in batch:
                del self._waiting[done]
            self._report_waiting()
        for number, (_, done) in enumerate(batch):
            if failed is None:
                done.set_result(before[number])
            else:
                done.set_exception(failed)


def not_served() -> Refused:
    """Return the error for a request to a model that has been closed."""
    text = "model: expected one that is served, it was removed or the service is ending; ask again, with the same key"
    return Refused(503, "Closing", text, Retry_After="5")
