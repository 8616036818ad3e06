"""Runs the page until it is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn

from boxcrew.core.errors import UsageError
from boxcrew.serve.watch.app import build_app
from boxcrew.serve.watch.settings import WatchConfig

_HEADER_BYTES = 16 << 10
_CONNECTIONS = 200
_IDLE_SECONDS = 30
_END_SECONDS = 2  # for answers that are on their way


def run_server(config: WatchConfig, on_ready: Callable[[str], None]) -> None:
    """Show the page until Ctrl-C or SIGTERM. `on_ready` is called with its address."""
    listening = _listen(config)
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(config),
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_END_SECONDS,
        )
    )

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, server.handle_exit, number, None)
        on_ready(_address(listening))
        await server._serve([listening])  # not `serve`, which would raise the signal again

    with listening:
        asyncio.run(serve())


def _listen(config: WatchConfig) -> socket.socket:
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise UsageError(
            f"host={config.host} port={config.port}: cannot listen there: {error.strerror}",
            advice="give another port=, or port=0 for any that is free",
        ) from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
