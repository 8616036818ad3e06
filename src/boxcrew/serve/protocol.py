"""HTTP connections that end if nothing comes, and errors of the protocol in the service's own form."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from boxcrew.serve.listening import BACKLOG
from boxcrew.serve.security import HEADERS, new_request_id

MAX_HEADER_BYTES = 16 * 1024
"""Bytes of the headers of a request, at most."""
MAX_CONNECTIONS = 1000
"""Connections at once, at most."""

_HEADER_SECONDS = 5.0
_KEEP_ALIVE = 10  # seconds that a connection stays open without a request
_UNREAD_SECONDS = 30.0  # for a client to read an answer that is complete
_FREE_PIECES = 1000  # pieces of a body that may be of any size
_PIECE_BYTES = 64  # the mean of those that come after them, at least


class _Connection(h11.Connection):
    """The state of a connection, which refuses a body in countless tiny chunks: each costs as much time as
    thousands of bytes. The head of an answer is sent with its first bytes: with each call of the system,
    other threads may take the interpreter away.
    """

    _num_pieces = _num_bytes = 0
    _head: Sequence[bytes] = ()

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        pieces = super().send_with_data_passthrough(event)
        if pieces is None:
            return None
        if isinstance(event, h11.Response):
            self._head = pieces
            return []
        pieces, self._head = [*self._head, *pieces], ()
        return pieces

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_pieces = self._num_bytes = 0
        elif isinstance(event, h11.Data):
            self._num_pieces += 1
            self._num_bytes += len(event.data)
            if self._num_pieces > _FREE_PIECES and self._num_bytes < _PIECE_BYTES * self._num_pieces:
                raise h11.RemoteProtocolError("the chunks are too small")
        return event


class Protocol(H11Protocol):
    """A connection whose headers have to arrive in a few seconds, and whose answers have to be read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _Connection(h11.SERVER, MAX_HEADER_BYTES)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_headers()
        elif self.conn.their_state is not h11.IDLE:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(_UNREAD_SECONDS, self._end_unread)

    def _end_unread(self) -> None:
        """Drop a connection whose client does not read: closing it would wait for the client."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _await_headers(self) -> None:
        """Close the connection unless the headers of a request are complete in time. Each further byte does
        not extend it.
        """
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(_HEADER_SECONDS, self._end_slow)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_slow(self) -> None:
        self._header_timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:  # a client that has sent nothing is told nothing
            self._send_error(408, "the headers did not arrive in time", "send the request at once")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's signature
        """Answer what is not HTTP, or has too large headers."""
        advice = f"send HTTP/1.1 with at most {MAX_HEADER_BYTES // 1024} KiB of headers"
        self._send_error(400, "this is not a request that can be read", advice)
        self.transport.close()

    def _send_error(self, status: int, message: str, advice: str) -> None:
        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        request_id = new_request_id()
        body = json.dumps({"error": message, "advice": advice, "request": request_id}).encode()
        headers = [
            *HEADERS.items(),
            ("X-Request-Id", request_id),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        events = (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    """Return how an application is run on these connections, without a word about what clients send."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=1,
        backlog=BACKLOG,
    )
