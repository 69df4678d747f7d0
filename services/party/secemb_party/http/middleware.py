"""Middleware for every request: a request id, metrics, one log line, security headers and a last-resort error handler.

It is written directly for ASGI, because this is cheap and gives access to the bytes that pass through.
"""

import logging
import re
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from secemb_party.http.problems import INTERNAL, SLUG, log_failure, problem_response
from secemb_party.logs import debugging, get_logger, new_request_id, request_lines
from secemb_party.metrics import Metrics
from secemb_party.parts import Clock
from secemb_party.peer_clock import TIME_HEADER, written

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

REQUEST_ID = b"x-request-id"
_ID = re.compile(rb"[0-9a-f]{16}")
UNMATCHED = "unmatched"

_GONE = 499  # the client disconnected before the answer
_UNAUTHORIZED = 401
# Requested by every device in every round.
_FOR_DEVICES = {
    "/v1/rounds/{round}/sessions/{session}/keys",
    "/v1/rounds/{round}/sessions/{session}/update",
    "/v1/rounds/{round}/sessions/{session}/relayed-keys",
    "/v1/rounds/{round}/sessions/{session}/relayed-update",
    "/v1/tasks/{task}",
    "/v1/tasks/{task}/join",
    "/v1/tasks/{task}/relay",
}
# Too frequent to log individually: metrics count them, and refusals are summarised (secemb_party.upkeep).
_QUIET = {UNMATCHED, "/healthz", "/readyz", "/metrics", "/peer/v1/relay"} | _FOR_DEVICES
# A response may override these: dense parameters may be cached, a page needs its scripts.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
_LEAN = tuple(
    one for one in _HEADERS if one[0] in (b"cache-control", b"x-content-type-options")
)  # for listeners without pages


class Requests:
    """The middleware of an app.

    With `clock` the caller is the other server: its request ids are kept, and answers tell it this server's time.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, *, clock: Clock | None = None, tracing: "Tracing | None" = None
    ) -> None:
        self._app, self._metrics, self._clock, self._tracing = app, metrics, clock, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; other scopes are passed on unchanged."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # A device's own id is never used: no input goes into the log.
        request_id = (_given_id(scope) if self._clock is not None else None) or new_request_id()
        exchange = _Exchange(request_id, scope, receive, send, self._clock)
        with request_lines(request_id), self._traced(scope, exchange):
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except Exception as error:
                await self._fail(scope, exchange, error)
            finally:
                self._record(scope, exchange)

    async def _fail(self, scope: Scope, exchange: "_Exchange", error: Exception) -> None:
        """Turn an unexpected error into a document without details, if no response has been sent.

        Starlette's own handler re-raises the error, and uvicorn would print its message, which may quote a request.
        """
        log_failure(error)
        self._metrics.refused(INTERNAL.slug)
        if exchange.status != _GONE:  # the server closes the connection: an incomplete answer must not look complete
            raise RuntimeError("the response was truncated; see the earlier error in the log") from None
        await problem_response(INTERNAL)(scope, exchange.receive, exchange.send)

    def _traced(self, scope: Scope, exchange: "_Exchange") -> AbstractContextManager[None]:
        if self._tracing is None:
            return nullcontext()
        answered = lambda: (route_template(scope), exchange.status)  # noqa: E731 - known only with the answer
        return self._tracing.request(scope, answered, peer=self._clock is not None)

    def _record(self, scope: Scope, exchange: "_Exchange") -> None:
        route, seconds = route_template(scope), perf_counter() - exchange.start
        self._metrics.request(route=route, method=scope["method"], status=exchange.status, seconds=seconds)
        self._metrics.moved(received=exchange.received, sent=exchange.sent)
        quiet = route in _QUIET or route.startswith("/ui") or exchange.status == _UNAUTHORIZED
        if quiet and not debugging():
            return
        get_logger().log(
            logging.DEBUG if quiet else logging.INFO,
            "request",
            method=scope["method"][:10],
            route=route,
            status=exchange.status,
            **({"problem": scope[SLUG]} if SLUG in scope else {}),
            seconds=round(seconds, 4),
            received=exchange.received,
            sent=exchange.sent,
        )


def _given_id(scope: Scope) -> str | None:
    """Return the request id in the caller's header, if it is valid."""
    given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
    return given.decode() if _ID.fullmatch(given) else None


class _Exchange:
    """One request and its answer as they pass through."""

    def __init__(self, request_id: str, scope: Scope, receive: Receive, send: Send, clock: Clock | None) -> None:
        self.request_id = request_id
        self._clock = clock
        self.start = perf_counter()
        self.status = _GONE
        self.received = 0
        self.sent = 0
        self._scope = scope
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(message)
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)

    def _add_headers(self, message: Message) -> None:
        brought = message.get("headers", ())
        headers = [*brought, (REQUEST_ID, self.request_id.encode())]
        if self._clock is not None:
            headers.append((TIME_HEADER.encode(), written(self._clock()).encode()))
        usual = _LEAN if route_template(self._scope) in _FOR_DEVICES else _HEADERS
        given = [name for name, _ in brought]
        for one in usual:
            if one[0] not in given:
                headers.append(one)
        message["headers"] = headers


def route_template(scope: Scope) -> str:
    """Return the template of the route that served this request, such as `/v1/rounds/{round}`."""
    template = getattr(scope.get("route"), "path_format", None)
    return template if isinstance(template, str) else UNMATCHED
