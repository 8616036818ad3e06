"""A lean HTTP/1.1 client on a socket that stays open: it shares the cores with what it measures."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK = 65536


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a request; status 0 if the connection was closed before one."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request_bytes(
    path: str,
    body: bytes | None = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a request as it goes over the wire."""
    fields = {"Host": "127.0.0.1"}
    if body is not None:
        fields |= {"Content-Type": "image/jpeg", "Content-Length": str(len(body))}
    fields |= dict(headers or {})
    lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class Connection:
    """A connection to a service, opened by its first request and again when the service has closed it."""

    def __init__(self, port: int, *, timeout: float = 30.0) -> None:
        self._port, self._timeout = port, timeout
        self._socket: socket.socket | None = None

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer to a request."""
        return self.send(request_bytes(path, body, method=method, headers=headers))

    def send(self, content: bytes) -> Answer:
        """Return the answer to what is sent, whatever it is. A connection that was idle may be closed just
        then: it is opened anew, once.
        """
        was_open = self._socket is not None
        try:
            answer = self._exchange(content)
        except ConnectionError:
            if not was_open:
                raise
            self.close()
            return self._exchange(content)
        if answer.status == 0 and was_open:
            return self._exchange(content)
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, content: bytes) -> Answer:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=self._timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A service may refuse before it has read all: its answer is there to be read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(content)
        answer = read_answer(self._socket, has_body=not content.startswith(b"HEAD "))
        if answer.status == 0 or answer.headers.get("connection") == "close":
            self.close()
        return answer


def read_answer(connection: socket.socket, *, has_body: bool = True) -> Answer:
    """Read one answer with a stated length; that to HEAD has no body."""
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0:
        piece = connection.recv(_CHUNK)
        if not piece:
            return Answer(status=0, headers={}, body=received)
        received += piece
    first, *lines = received[:end].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = [received[end + 4 :]]
    left = (int(headers.get("content-length", 0)) if has_body else 0) - len(body[0])
    while left > 0:
        piece = connection.recv(min(left, 1 << 20))
        if not piece:
            return Answer(status=0, headers=headers, body=b"".join(body))
        body.append(piece)
        left -= len(piece)
    return Answer(status=int(first.split()[1]), headers=headers, body=b"".join(body))
