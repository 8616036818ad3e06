"""Middleware around all routes: ids, tokens, headers, errors."""

from __future__ import annotations

import asyncio
import time

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from boxcrew.serve.log import ServiceLog
from boxcrew.serve.metrics import Metrics
from boxcrew.serve.refusals import RefusedError, refusal
from boxcrew.serve.security import HEADERS, AccessGuard, is_request_id, new_request_id

_DISCARDED = 64 * 1024 * 1024  # bytes of a refused body that are read, so that the client reads the answer
_DISCARD_SECONDS = 1.0
_WITHOUT_LOG = frozenset(  # routes that are asked all the time
    {"label_studio_health", "live", "metrics", "model_ready", "ready", "static"}
)
_OWN = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_ID, _CACHE, _CLOSE = b"x-request-id", b"cache-control", (b"connection", b"close")
_OWN_NAMES = frozenset({_ID, *(name for name, _ in _OWN)})


class ServiceMiddleware:
    """Gives each request an id, checks its token, and sends exactly one answer, with the headers that all
    answers have.
    """

    def __init__(self, app: ASGIApp, *, guard: AccessGuard, metrics: Metrics, log: ServiceLog) -> None:
        self.app, self._guard, self._metrics, self._log = app, guard, metrics, log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is offered
            return
        headers = Headers(scope=scope)
        sent_id = headers.get("x-request-id", "")
        state = scope.setdefault("state", {})
        state["arrived"] = time.perf_counter()
        state["request_id"] = sent_id if is_request_id(sent_id) else new_request_id()
        exchange = _Exchange(scope, headers, receive, send)
        try:
            if sent_id and sent_id != state["request_id"]:
                advice = "at most 64 letters, digits, and . _ -"
                raise RefusedError(400, "bad_request", "X-Request-Id: not an id", advice=advice)
            exchange.require_one_length()
            self._guard.require(scope["path"], headers)
            await self.app(scope, exchange.receive, exchange.send)
        except Exception as error:  # noqa: BLE001  whatever it is, the client gets an answer
            await self._refuse(exchange, error)
        self._count(exchange)

    async def _refuse(self, exchange: _Exchange, error: Exception) -> None:
        if exchange.status == 0:
            response = refusal_of(exchange.scope, error)
            await response(exchange.scope, exchange.receive, exchange.send)

    def _count(self, exchange: _Exchange) -> None:
        scope = exchange.scope
        state = scope["state"]
        seconds = time.perf_counter() - state["arrived"]
        route = _route(scope)
        self._metrics.request(route=route, status=exchange.status, seconds=seconds)
        if "kind" in state:
            self._metrics.error(state["kind"])
        if "failure" in state:
            self._log.failure("failure", state["failure"], request=state["request_id"])
        if route in _WITHOUT_LOG and exchange.status < 400:
            return
        self._log.write(
            "request",
            request=state["request_id"],
            method=scope["method"][:16],
            route=route,
            status=exchange.status,
            milliseconds=round(1000 * seconds, 1),
            bytes=exchange.num_bytes,
            **{name: state[name] for name in ("kind", "model", "photos") if name in state},
        )


class _Exchange:
    """Counts and limits what passes in one request and its answer."""

    def __init__(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.status = 0  # of the answer, once it has begun
        self.num_bytes = 0  # of the body that were read
        self._receive, self._send = receive, send
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self._is_read = not has_body
        self._is_ambiguous = "content-length" in headers and "transfer-encoding" in headers
        self._waits_for_us = headers.get("expect", "").lower() == "100-continue"

    def require_one_length(self) -> None:
        """Refuse a body that a proxy could end elsewhere: what follows might be another's request."""
        if self._is_ambiguous:
            advice = "send Content-Length, or Transfer-Encoding: chunked"
            raise RefusedError(400, "bad_request", "the body has two lengths", advice=advice)

    async def receive(self) -> Message:
        message = await self._receive()
        self._waits_for_us = False
        self.num_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            self._is_read = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [pair for pair in message["headers"] if pair[0] not in _OWN_NAMES]
            headers += [*_OWN, (_ID, self.scope["state"]["request_id"].encode())]
            if not any(name == _CACHE for name, _ in headers):
                headers.append((_CACHE, b"no-store"))
            if self._is_ambiguous or not (self._is_read or await self._discard()):
                headers = [*(pair for pair in headers if pair[0] != _CLOSE[0]), _CLOSE]
            message["headers"] = headers
        await self._send(message)

    async def _discard(self) -> bool:
        """Read the rest of a body that nobody wants, since most clients read no answer before they have sent
        all; return whether that was possible in reasonable time.
        """
        if self._waits_for_us:
            return False
        most = self.num_bytes + _DISCARDED
        try:
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self._is_read and self.num_bytes < most:
                    await self.receive()
        except TimeoutError:
            return False
        return self._is_read


def refusal_of(scope: Scope, error: Exception) -> Response:
    """Return the answer to a request that failed, and keep the reason for the log and the metrics."""
    refused, state = refusal(error), scope["state"]
    state["kind"] = refused.kind
    if refused.kind in {"internal", "broken_model"}:
        state["failure"] = error
    return refused.response(state["request_id"])


def _route(scope: Scope) -> str:
    """Return the name of the handler of a request."""
    return getattr(scope.get("endpoint"), "__name__", "none")
