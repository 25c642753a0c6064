"""The security middleware: checks every request before its body is read, and adds headers to every response.

- A header in `ONCE` appears twice (a proxy may have read the other one), or the length is given in two ways: 400.
- The Host is not a name of this service: 400, except on the paths `PROBES`.
- The Origin is another site (cross-site request in a browser): 403.
- Too many requests per second or at a time: 429.
- The token is missing, wrong or expired: 401, except on the public paths `OPEN`.
- The body is too large, by Content-Length or as received: 413. It does not arrive in time: 408.

Each request has an id, of its header X-Request-Id or a new one, which is returned and logged. An unexpected error is
logged by its class and position in the code; the response contains nothing of its message.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.large import SMALL_BYTES, Visit
from bcmdist.app.service.limits import AtOnce, Rate
from bcmdist.app.service.logs import HEADER, described, id_of, log_error, log_request, request_id
from bcmdist.app.service.page import SCRIPTS
from bcmdist.app.service.service import Service
from bcmdist.app.service.tokens import EVERYTHING, Token, Tokens

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPEN = (
    "/",
    "/docs",
    "/page.css",
    *(f"/{name}" for name in SCRIPTS),
    "/health",
    "/ready",
    "/favicon.ico",
)  # no model data
PROBES = ("/health", "/ready", "/metrics")  # asked by address, as by Kubernetes and Prometheus: any Host
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ONCE = (b"host", b"origin", b"authorization", b"idempotency-key", b"content-type", b"content-length")
CLOSE = [(b"connection", b"close")]
HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]


class SecurityMiddleware:
    """ASGI middleware in front of the application.

    Parameters
    ----------
    tokens : None: no authentication, every client has all scopes
    hosts : accepted names in the Host header
    """

    def __init__(self, app, service: Service, *, tokens: Tokens | None, hosts):
        self.app, self.tokens, self.hosts, self._service = app, tokens, frozenset(hosts), service
        self.limits, self.metrics, self.large = service.limits, service.metrics, service.large
        self.rate, self.at_once = Rate(self.limits.per_second, service.buckets), AtOnce(self.limits.at_once)

    async def __call__(self, scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 500
        request_id.set(id_of(scope))
        sent = False

        async def answer(message):
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
                more = [(HEADER, request_id.get().encode()), *(CLOSE if self._service.ending else [])]
                message["headers"] = [*message.get("headers", []), *HEADERS, *more]
            await send(message)

        try:
            try:
                scope["token"], asker = self._admitted(scope)
                with self.at_once.one(asker) as may, Visit(self.large, asker) as visit:
                    if not may and scope["path"] not in OPEN:
                        raise self._too_many(f"{self.limits.at_once} requests at a time", 1)
                    scope["large"] = visit
                    await self.app(scope, self._bounded(receive, visit), answer)
            except Refused as refused:
                await refused.answer()(scope, receive, answer)
        except Exception as error:
            log_error(f"{type(error).__name__} at {_where(error)}")
            if not sent:
                text = "expected to do this, it went wrong; see the log of the service"
                await Refused(500, "InternalError", text).answer()(scope, receive, answer)
        finally:
            self._note(scope, status, time.perf_counter() - begun)

    def _admitted(self, scope) -> tuple[Token | None, str]:
        """Check a request's headers; return its token and client. Raises `Refused`."""
        headers = _headers(scope)
        host = headers.get(b"host", "")
        if _name(host) not in self.hosts and scope["path"] not in PROBES:
            raise Refused(
                400, "InvalidRequest", "Host: expected a name of this service, got another; see --allowed-host"
            )
        if headers.get(b"origin", "").rpartition("//")[2] not in ("", host):
            raise Refused(403, "InvalidRequest", "Origin: expected a page of this service, got another; ask from there")
        token = self._token(headers.get(b"authorization", ""))
        asker = token.name if token and token.name else (scope.get("client") or ("",))[0]
        if wait := self.rate.wait(asker):
            raise self._too_many(f"{self.limits.per_second:g} requests a second", max(1, round(wait)))
        if token is None and scope["path"] not in OPEN:
            raise Refused(
                401,
                "Unauthorized",
                "Authorization: expected Bearer with a token that is valid, got none; see `bcmdist tokens`",
                WWW_Authenticate="Bearer",
            )
        self._refuse_large(headers.get(b"content-length", "0"))
        return token, asker

    def _too_many(self, most, seconds):
        text = f"expected at most {most}, got more; wait and ask again"
        return Refused(429, "TooManyRequests", text, Retry_After=str(seconds))

    def _token(self, text) -> Token | None:
        if self.tokens is None:
            return EVERYTHING
        kind, _, presented = text.partition(" ")
        return self.tokens.of(presented.strip()) if kind.lower() == "bearer" and presented else None

    def _refuse_large(self, announced):
        if not (announced.isascii() and announced.isdigit()):
            raise Refused(400, "InvalidRequest", "Content-Length: expected a number, got something else; correct it")
        if len(announced) > 18 or int(announced) > self.limits.body_bytes:
            raise self._too_large()

    def _too_large(self):
        most = self.limits.body_bytes
        return Refused(413, "TooLarge", f"body: expected at most {most} bytes, got more; send it in several requests")

    def _bounded(self, receive, visit) -> Receive:
        """Return a `receive` that limits the size and duration of the body.

        A large request first waits for a slot; this wait does not count towards the duration.
        """
        taken, deadline, whole = 0, asyncio.get_running_loop().time() + self.limits.body_seconds, False

        async def bounded():
            nonlocal taken, whole, deadline
            if whole:  # the next message is the disconnect
                return await receive()
            if taken > SMALL_BYTES and not visit.entered:
                begun = time.monotonic()
                await visit.enter()
                deadline += time.monotonic() - begun
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                text = "expected the whole request in time, it did not come; send it again"
                raise Refused(408, "Timeout", text) from None
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if taken > self.limits.body_bytes:
                raise self._too_large()
            return message

        return bounded

    def _note(self, scope, status, seconds):
        found = described(scope, status, seconds)
        route = found["path"]
        self.metrics.count("bcmdist_requests_total", route=route, method=found["method"], status=str(status))
        self.metrics.took(seconds, route=route)
        log_request(found)


def _headers(scope) -> dict[bytes, str]:
    """Return headers by name.

    Raises
    ------
    Refused
        A header of `ONCE` appears twice, or both Content-Length and Transfer-Encoding are present.
    """
    names = [name.lower() for name, _ in scope["headers"]]
    twice = next((name for name in ONCE if names.count(name) > 1), None)
    if twice is not None:
        text = f"{twice.decode().title()}: expected one, got {names.count(twice)}; leave out the others"
        raise Refused(400, "InvalidRequest", text, Connection="close")
    if b"content-length" in names and b"transfer-encoding" in names:
        text = "headers: expected Content-Length or Transfer-Encoding, got both; leave out one of them"
        raise Refused(400, "InvalidRequest", text, Connection="close")
    return {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _name(host):
    """Return a host name without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _where(error):
    """Return the function and line where an error was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.name}, line {last.lineno}"
