"""HTTP connections that are given up where the head of a request does not come; uvicorn would wait for ever."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0  # from the first byte of a head, or a connection, to the last of the head


class PatientForHeads(H11Protocol):
    """uvicorn's protocol with an end to its patience.

    What follows a head is limited by `bcmdist.app.service.gate`, and the time between two requests by uvicorn.
    """

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def _wait(self):
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _go_on(self):
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
