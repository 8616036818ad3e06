"""Connections whose clients do not do their part."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from boxcrew.serve import protocol


@contextmanager
def running(app: Any) -> Iterator[tuple[int, uvicorn.Server]]:
    """Run an application on these connections in a thread; yield its port and the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=protocol.Protocol, lifespan="off", log_config=None, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        yield listener.getsockname()[1], server
        server.should_exit = True
        thread.join()


async def large_answer(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": bytes(50_000_000)})


def test_an_answer_that_is_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_UNREAD_SECONDS", 0.2)
    with (
        running(large_answer) as (port, server),
        socket.create_connection(("127.0.0.1", port), timeout=20) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = len(client.recv(1))
        until = time.monotonic() + 20
        while server.server_state.connections and time.monotonic() < until:
            time.sleep(0.01)
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(1 << 20):  # what the system has taken on can still be read
                received += len(piece)
        assert received < 50_000_000


def test_connections_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 2)
    with running(large_answer) as (port, _):
        clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(3)]
        assert clients[2].recv(1) == b""
        clients[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert clients[0].recv(8) == b"HTTP/1.1"
        for client in clients:
            client.close()
