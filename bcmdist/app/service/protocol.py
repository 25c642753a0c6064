"""HTTP connections with an end to their patience; uvicorn would wait for ever.

1. The head of a request does not come: the connection is closed after some seconds.
2. A request is answered before all of its body has come: what comes of it for a moment is left unread, so that its
   sender finds the answer, and then the connection is closed.
3. A body comes in tiny pieces, each of which is looked at: it is refused.
4. An answer is not read, or too slowly: the connection is dropped.
5. There are many connections: for a new one the oldest is dropped of those without a request of a holder of a token in
   progress, first of the same address.

How long a body may take is limited by `bcmdist.app.service.middleware`, and the time between two requests by uvicorn.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0  # from the first byte of a head, or a connection, to the last of the head
UNFINISHED_SECONDS = 2.0  # that the rest of a body is left unread after its answer
UNREAD_SECONDS = 5.0  # that nothing need be read of an answer
LEAST_RATE = 2**16  # bytes of an answer that are read in each second after these
LOOK_SECONDS = 1.0  # between two looks at what was read
FEW_PIECES, LEAST_BYTES = 256, 256  # pieces of a body that may be smaller than so many bytes each, on average
SAME_ADDRESS = 4  # of all connections each address may have this part that waits


class WholePieces(h11.Connection):
    """A connection that refuses bodies in tiny pieces."""

    _pieces = _bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._pieces = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > FEW_PIECES + self._bytes / LEAST_BYTES:
                raise h11.RemoteProtocolError("expected a body in larger pieces")
        return event


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol with these limits."""

    _giving_up: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unfinished = _dropped = False
    _waiting_since = 0.0
    """when the connection began, or was answered last"""
    _unread: tuple[float, int] | None = None
    """since when there are bytes that are not read, and how many"""

    def __init__(self, config, *arguments, **options):
        super().__init__(config, *arguments, **options)
        self.conn = WholePieces(h11.SERVER, config.h11_max_incomplete_event_size)

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        self._waiting_since = self.loop.time()
        self._make_room()
        self._wait(HEAD_SECONDS)
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._unfinished:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait(HEAD_SECONDS)
        elif not self._unfinished:
            self._go_on()

    def on_response_complete(self) -> None:
        self._waiting_since = self.loop.time()
        self._unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if self._unfinished and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self._go_on()
            self._wait(UNFINISHED_SECONDS)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # an answer has begun
            self.transport.abort()

    def resume_writing(self) -> None:
        self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    @property
    def _in_progress(self) -> bool:
        """Whether somebody who may ask waits for an answer."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and bool(cycle.scope.get("token"))

    def _make_room(self):
        """Drop the oldest connection that waits where there are too many, or too many of this address."""
        most = self.limit_concurrency
        if most is None or len(self.connections) < most // SAME_ADDRESS:
            return
        others = [one for one in self.connections if isinstance(one, ImpatientProtocol)]
        others = [one for one in others if one is not self and not one._dropped]
        waiting = [one for one in others if not one._in_progress]
        same = [one for one in waiting if one.client and self.client and one.client[0] == self.client[0]]
        if len(same) >= most // SAME_ADDRESS or len(others) >= most - 1:
            oldest = min(same or waiting, key=lambda one: one._waiting_since, default=None)
            if oldest is not None:
                oldest._dropped = True
                oldest.transport.abort()

    def _wait(self, seconds):
        if self._giving_up is None:
            self._giving_up = self.loop.call_later(seconds, self.transport.close)

    def _go_on(self):
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _look(self):
        """Drop the connection where what was written is not read, also once it is closing."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = now, left
        elif now - self._unread[0] > UNREAD_SECONDS + self._unread[1] / LEAST_RATE:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)
