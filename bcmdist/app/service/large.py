"""Large requests: a few at a time, at most one per client, in a thread of lower priority.

A request is large once it has sent more than `SMALL_BYTES`, or asks for more than fits one micro-batch
(`bcmdist.app.service.asking`). The rest of its body is read only when it has a slot, which it keeps until it is
answered: this bounds the memory of all large requests. Small requests never wait for large ones.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import lower_priority

SMALL_BYTES = 2**16  # largest body that is parsed on the event loop, in some milliseconds
PLACES = 2  # slots
MOST_WAITING = 16  # requests of one client that may wait for a slot
Result = TypeVar("Result")


class LargeRequests:
    """Slots for large requests, and the thread that computes for them; used in one event loop.

    Parameters
    ----------
    seconds : longest wait of a request for a slot
    places : number of slots
    """

    def __init__(self, seconds: float, places: int = PLACES):
        self.seconds, self._free = seconds, places
        self._inside: set[str] = set()
        """clients with a slot"""
        self._waiting: list[tuple[str, asyncio.Future]] = []
        self._thread = ThreadPoolExecutor(1, "large requests", lower_priority)

    async def enter(self, asker: str) -> None:
        """Wait for a slot.

        Raises
        ------
        Refused
            Too many requests of this client are waiting, or no slot was free in time.
        """
        if Counter(one for one, _ in self._waiting)[asker] >= MOST_WAITING:
            raise _busy()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((asker, turn))
        self._admit()
        try:
            async with asyncio.timeout(self.seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # got a slot at the last moment
                self.leave(asker)
            self._waiting = [one for one in self._waiting if one[1] is not turn]
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def leave(self, asker: str) -> None:
        """Release a slot."""
        self._free += 1
        self._inside.discard(asker)
        self._admit()

    def _admit(self):
        """Give free slots to the requests that have waited longest, at most one per client."""
        for one in list(self._waiting):
            asker, turn = one
            if self._free and asker not in self._inside and not turn.done():
                self._waiting.remove(one)
                self._inside.add(asker)
                self._free -= 1
                turn.set_result(None)

    async def run(self, function: Callable[..., Result], *arguments) -> Result:
        """Run a function in the thread and return its result; other requests' calls can run between two calls."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)


class Visit:
    """One request, which takes a slot when it turns out to be large, and at most one."""

    def __init__(self, large: LargeRequests, asker: str):
        self._large, self._asker, self.entered = large, asker, False

    async def enter(self) -> None:
        """Wait for a slot, as `LargeRequests.enter`, unless the request has one."""
        if not self.entered:
            await self._large.enter(self._asker)
            self.entered = True

    async def run(self, function: Callable[..., Result], *arguments) -> Result:
        """Wait for a slot, then run a function as `LargeRequests.run`."""
        await self.enter()
        return await self._large.run(function, *arguments)

    def __enter__(self) -> "Visit":
        return self

    def leave(self) -> None:
        """Release the slot, if there is one: the rest of the request takes little memory."""
        if self.entered:
            self.entered = False
            self._large.leave(self._asker)

    def __exit__(self, *_) -> None:
        self.leave()


def _busy():
    text = "expected fewer large requests at a time, others are being answered; send it again, or in smaller ones"
    return Refused(503, "Busy", text, Retry_After="5")
