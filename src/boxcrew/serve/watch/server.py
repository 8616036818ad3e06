"""The process of the page, until a signal ends it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from boxcrew.serve.listening import listen, url_of
from boxcrew.serve.protocol import uvicorn_config
from boxcrew.serve.watch.app import build_app
from boxcrew.serve.watch.settings import WatchConfig


def watch(config: WatchConfig, announce: Callable[[str], object]) -> None:
    """Show the page until Ctrl-C or SIGTERM. `announce` is called with its URL when it can be opened."""
    with listen(config.host, config.port) as listener:
        server = _WatchServer(uvicorn_config(build_app(config)), lambda: announce(url_of(listener)))
        asyncio.run(server.serve(sockets=[listener]))


class _WatchServer(uvicorn.Server):
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
