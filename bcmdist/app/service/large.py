"""Large requests: a few at a time, and those of one asker one after the other, in a thread of a lower priority.

A request is large once it has sent more than `SMALL_BYTES`, or asks for more than fits one micro-batch
(`bcmdist.app.service.micro_batches`). Its body is not read before it has a slot, which it keeps until it is answered,
so that the memory of all large requests is bounded. Small requests never wait for large ones.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import lower_priority

SMALL_BYTES = 2**16  # of a body that is read where all others wait for it, which takes some milliseconds
PLACES = 2
MOST_WAITING = 16  # requests of one asker that wait for a place
Result = TypeVar("Result")


class LargeRequests:
    """Places for large requests, and the thread that works for them; of one event loop.

    Parameters
    ----------
    seconds : that a request waits for a place at most
    """

    def __init__(self, seconds: float, places: int = PLACES):
        self.seconds, self._free = seconds, places
        self._inside: set[str] = set()
        """askers with a place"""
        self._waiting: list[tuple[str, asyncio.Future]] = []
        self._thread = ThreadPoolExecutor(1, "large requests", lower_priority)

    async def enter(self, asker: str) -> None:
        """Wait for a place.

        Raises
        ------
        Refused
            Too many requests of the asker wait, or there was no place in time.
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
            if turn.done() and not turn.cancelled():  # had a place at the last moment
                self.leave(asker)
            self._waiting = [one for one in self._waiting if one[1] is not turn]
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise

    def leave(self, asker: str) -> None:
        """Give back a place."""
        self._free += 1
        self._inside.discard(asker)
        self._admit()

    def _admit(self):
        """Those who have waited longest, as far as there are places and they have none yet."""
        for one in list(self._waiting):
            asker, turn = one
            if self._free and asker not in self._inside and not turn.done():
                self._waiting.remove(one)
                self._inside.add(asker)
                self._free -= 1
                turn.set_result(None)

    async def run(self, function: Callable[..., Result], *arguments) -> Result:
        """The result of a function, in the thread; what others ask for runs between two calls."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)


class Visit:
    """A request, which takes a place when it turns out to be large, once."""

    def __init__(self, large: LargeRequests, asker: str):
        self._large, self._asker, self.entered = large, asker, False

    async def enter(self) -> None:
        """As of `LargeRequests`."""
        if not self.entered:
            await self._large.enter(self._asker)
            self.entered = True

    async def run(self, function: Callable[..., Result], *arguments) -> Result:
        """As of `LargeRequests`, with a place."""
        await self.enter()
        return await self._large.run(function, *arguments)

    def __enter__(self) -> "Visit":
        return self

    def leave(self) -> None:
        """Give back the place, if there is one: what follows takes little memory."""
        if self.entered:
            self.entered = False
            self._large.leave(self._asker)

    def __exit__(self, *_) -> None:
        self.leave()


def _busy():
    text = "expected fewer large requests at a time, others are being answered; send it again, or in smaller ones"
    return Refused(503, "Busy", text, Retry_After="5")
