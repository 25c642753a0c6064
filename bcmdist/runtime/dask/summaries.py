"""What workers tell of results that stay with them: sent along with the news that there is a result, not asked for.

A worker logs what it tells as an event of Dask's, under the name of the client: one message in streams that are open
anyway, which the scheduler passes on before it says that the task is done. A question to a worker would cost the
scheduler two requests, each on a connection of its own.

On retry or duplicate: what came last counts. On loss: the result is fetched as a whole. The scheduler remembers its
last 100,000 events until the client has left for an hour: `distributed.admin.low-level-log-length`.
"""

import asyncio
import contextlib
import pickle
from dataclasses import dataclass
from typing import Any

import distributed

from bcmdist.runtime.task import Parted

LATE_SECONDS = 5.0  # that something told may come after the news of its result, before that is fetched as a whole
AGAIN_SECONDS = 0.05  # between looks whether it has come


@dataclass(frozen=True)
class Summary:
    """What is told of a result, and the worker that has it."""

    told: Any
    worker: str


class EventChannel:
    """What workers tell one client."""

    def __init__(self, client):
        self.client = client
        self._wanted: set[str] = set()
        """keys of results of which something is to be told"""
        self._absorbed: dict[str, Summary] = {}
        client.subscribe_topic(client.id, self._receive)  # in the client's event loop

    def submit(self, run, task, parts, **options) -> distributed.Future:
        """As `Client.submit` of a task of which something is told."""
        self._wanted.add(options["key"])
        return self.client.submit(run_and_publish, run, self.client.id, task, parts, **options)

    def close(self) -> None:
        """Stop receiving summaries. The scheduler would fail to tell a client that has left that it has."""
        self.client.unsubscribe_topic(self.client.id)

    def _receive(self, event):
        said = event[1]
        if said.get("key") in self._wanted:  # of others Dask itself tells
            self._absorbed[said["key"]] = Summary(pickle.loads(said["told"]), said["worker"])

    async def told(self, future) -> Summary:
        """What is told of a result that stays on its worker, as soon as it is there; raises what gathering it would."""
        try:
            with contextlib.suppress(distributed.CancelledError), self.client.as_current():
                await distributed.wait(future)
            for _ in range(int(LATE_SECONDS / AGAIN_SECONDS)):
                if future.status != "finished":
                    break
                if future.key in self._absorbed:
                    return self._absorbed[future.key]
                await asyncio.sleep(AGAIN_SECONDS)
            whole: Parted = await self.client.gather(future, asynchronous=True)
            return Summary(whole.told, "")
        finally:
            self._wanted.discard(future.key)
            self._absorbed.pop(future.key, None)


def run_and_publish(run, topic, task, parts) -> Parted:
    """As `run`, on a worker that tells what is to be told of the result, under a topic."""
    found: Parted = run(task, parts)
    worker = distributed.get_worker()
    # It leaves before the news that the task is done: both go through the worker's event loop, in this order.
    told = pickle.dumps(found.told)
    worker.log_event(topic, {"key": worker.get_current_task(), "worker": worker.address, "told": told})
    return found
