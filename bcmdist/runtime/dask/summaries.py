"""Small summaries pushed with task completion; the results themselves stay on the workers.

A worker logs the summary as a Dask event with the client's id as topic: one message in a stream that is open anyway.
The scheduler forwards the event before it reports that the task is done. A request to the worker would cost the
scheduler two messages, each on a connection of its own.

On retry or duplicate: the last summary counts. On loss: the whole result is fetched. The scheduler keeps its last
100,000 events (`distributed.admin.low-level-log-length`) until an hour after the client has left.
"""

import asyncio
import contextlib
import pickle
from dataclasses import dataclass
from typing import Any

import distributed

from bcmdist.runtime.interface import Parted, timed

LATE_SECONDS = 5.0  # wait for a summary after its task is done, before the whole result is fetched
AGAIN_SECONDS = 0.05  # between checks for the summary


@dataclass(frozen=True)
class Summary:
    """The small part of a `Parted` result, and the address of the worker that keeps the large part."""

    value: Any
    worker: str
    seconds: float | None = None
    """duration of the task on the worker; None if unknown"""


class EventChannel:
    """Receives the summaries that workers send to one client."""

    def __init__(self, client):
        self.client = client
        self._expected: set[str] = set()
        """keys of tasks whose summaries are expected"""
        self._received: dict[str, Summary] = {}
        """summaries received and not yet returned by `summary`, by task key"""
        client.subscribe_topic(client.id, self._receive)  # in the client's event loop

    def submit(self, run, task, parts, **options) -> distributed.Future:
        """Submit a task with `Parted` results, as `Client.submit` does; options must include `key`."""
        self._expected.add(options["key"])
        return self.client.submit(run_and_publish, run, self.client.id, task, parts, **options)

    def close(self) -> None:
        """Stop receiving summaries. Otherwise the scheduler fails when it reports the client's departure to it."""
        self.client.unsubscribe_topic(self.client.id)

    def _receive(self, event):
        fields = event[1]
        if fields.get("key") in self._expected:  # Dask logs other events under this topic too
            self._received[fields["key"]] = Summary(
                pickle.loads(fields["summary"]), fields["worker"], fields["seconds"]
            )

    async def summary(self, future) -> Summary:
        """Wait for the summary of a result that stays on its worker; raises the errors that gathering it would."""
        try:
            with contextlib.suppress(distributed.CancelledError), self.client.as_current():
                await distributed.wait(future)
            for _ in range(int(LATE_SECONDS / AGAIN_SECONDS)):
                if future.status != "finished":
                    break
                if future.key in self._received:
                    return self._received[future.key]
                await asyncio.sleep(AGAIN_SECONDS)
            whole: Parted = await self.client.gather(future, asynchronous=True)
            return Summary(whole.summary, "")
        finally:
            self._expected.discard(future.key)
            self._received.pop(future.key, None)


def run_and_publish(run, topic, task, parts) -> Parted:
    """Call `run(task, parts)` on a worker, and log the summary of the result as an event under `topic`."""
    found: Parted
    found, seconds = timed(run, task, parts)
    worker = distributed.get_worker()
    # Sent before the message that the task is done: both go through the worker's event loop, in this order.
    summary = pickle.dumps(found.summary)
    fields = {"key": worker.get_current_task(), "worker": worker.address, "summary": summary, "seconds": seconds}
    worker.log_event(topic, fields)
    return found
