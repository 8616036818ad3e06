"""The process of the page, until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from boxcrew.serve.listening import listen, url_of
from boxcrew.serve.protocol import MAX_HEADER_BYTES, Protocol
from boxcrew.serve.watch.app import build_app
from boxcrew.serve.watch.settings import WatchConfig

_KEEP_ALIVE = 30  # seconds that a connection stays open without a request
_END_SECONDS = 2  # for answers that are on their way


def watch(config: WatchConfig, announce: Callable[[str], object]) -> None:
    """Show the page until Ctrl-C or SIGTERM. `announce` is told its URL as soon as it can be opened."""
    with listen(config.host, config.port) as listener:
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # not of every client that sends nonsense
        settings = uvicorn.Config(
            build_app(config),
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_END_SECONDS,
        )
        server = _Server(settings, lambda: announce(url_of(listener)))
        asyncio.run(server.serve(sockets=[listener]))


class _Server(uvicorn.Server):
    """A server whose end by a signal is not a failure."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  uvicorn's signature
        self.force_exit = self.should_exit
        self.should_exit = True
