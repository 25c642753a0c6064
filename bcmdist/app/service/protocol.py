"""uvicorn's HTTP protocol with timeouts against slow or excessive connections.

These cases are limited, which uvicorn alone does not do:

1. The head of a request does not arrive: the connection is closed after `HEAD_SECONDS`.
2. A request is answered before all of its body has arrived: for `UNFINISHED_SECONDS` the rest is left unread, so that
   the sender can read the response; then the connection is closed.
3. A body arrives in tiny pieces, each of which costs time: it is refused.
4. A response is not read, or too slowly: the connection is dropped.
5. There are too many connections, in total or from one address: a new one replaces the oldest one without an
   authorized request in progress, from the same address if there is one.

`bcmdist.app.service.middleware` limits the duration of a body, uvicorn the time between two requests.
"""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0  # from a new connection, or the first byte of a head, to the end of the head
UNFINISHED_SECONDS = 2.0  # for which the rest of a body is left unread after the response
UNREAD_SECONDS = 5.0  # for which a client may read nothing of a response
LEAST_RATE = 2**16  # bytes of a response per second that a client must read after UNREAD_SECONDS
LOOK_SECONDS = 1.0  # between two checks of the write buffer
FEW_PIECES, LEAST_BYTES = 256, 256  # pieces of any size, and average bytes required of each further piece
SAME_ADDRESS = 4  # one address may have 1/4 of all connections without a request in progress


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
    """uvicorn's HTTP protocol with the limits of this module."""

    _giving_up: asyncio.TimerHandle | None = None
    _looking: asyncio.TimerHandle | None = None
    _unfinished = _dropped = False
    _waiting_since = 0.0
    """time of the connection's start or last complete response"""
    _unread: tuple[float, int] | None = None
    """since when the write buffer has not been empty, and its size then"""

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
        else:  # a response has begun
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
        """Whether a request with a valid token is being answered."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and bool(cycle.scope.get("token"))

    def _make_room(self):
        """Drop the oldest connection without a request in progress, if there are too many (of this address)."""
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
        """Drop the connection if the client does not read the response, also while the connection is closing."""
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left:
            self._unread = None
        elif self._unread is None:
            self._unread = now, left
        elif now - self._unread[0] > UNREAD_SECONDS + self._unread[1] / LEAST_RATE:
            self.transport.abort()
            return
        self._looking = self.loop.call_later(LOOK_SECONDS, self._look)
