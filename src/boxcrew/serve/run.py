"""The process of a service: it opens a socket, loads the models, answers, and ends without losing any."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType

import cv2
import uvicorn

from boxcrew.core.errors import BoxcrewError
from boxcrew.serve.app import build_app
from boxcrew.serve.listening import listen, url_of
from boxcrew.serve.memory import limit_free_memory, return_free_memory, stay_small
from boxcrew.serve.models import ModelSource
from boxcrew.serve.protocol import uvicorn_config
from boxcrew.serve.reload_on_change import reload_on_change
from boxcrew.serve.service import Service
from boxcrew.serve.settings import ServeConfig

_TICK = 0.05  # seconds between two looks at what is left, at the end


def serve(config: ServeConfig, sources: Sequence[ModelSource], announce: Callable[[str], object]) -> None:
    """Answer requests until a signal ends the process. `announce` is called with the URL as soon as a client
    can connect. `ModelError` if a model cannot be used.
    """
    limit_free_memory()
    cv2.setNumThreads(1)  # photos are decoded beside each other already
    service = Service.of(config, sources)
    with listen(config.host, config.port) as listener:
        url = url_of(listener)
        server = _Server(uvicorn_config(build_app(service)), service)
        failure = asyncio.run(_run(server, service, listener, lambda: announce(url)))
    if failure is not None:
        raise failure


async def _run(
    server: _Server, service: Service, listener: socket.socket, announce: Callable[[], object]
) -> BoxcrewError | None:
    """Run the server; return why the models could not be opened, or None."""
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not (server.started or running.done()):
        await asyncio.sleep(0)
    announce()
    failure: BoxcrewError | None = None
    watches: list[asyncio.Future[None]] = []
    try:
        await service.pool.run(service.models.open)
        gc.freeze()
        return_free_memory()
        service.warm.set()
        service.log.write("ready", models=service.models.names())
        watches.append(asyncio.ensure_future(stay_small(service.admission)))
        if service.config.follow:
            watches.append(asyncio.ensure_future(reload_on_change(service)))
    except BoxcrewError as error:
        failure, server.should_exit = error, True
    await running
    for watch in watches:
        watch.cancel()
    service.pool.close()
    return failure


class _Server(uvicorn.Server):
    """A server that answers what it has accepted before it ends."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._until: float | None = None  # when it ends, whatever is left

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  uvicorn's signature
        """Begin to end; a second signal ends at once."""
        admission = self._service.admission
        if admission.is_draining:
            self.should_exit = self.force_exit = True
        admission.is_draining = True
        self._until = time.monotonic() + self._service.config.drain

    async def main_loop(self) -> None:
        """Run until all is answered after a signal."""
        ticks = 0
        while not await self.on_tick(ticks):
            await asyncio.sleep(_TICK)
            ticks = (ticks + 1) % 10 if self._until is None else ticks + 1
            if self._until is not None and (self._is_idle() or time.monotonic() > self._until):
                self.should_exit = True

    def _is_idle(self) -> bool:
        return self._service.admission.num_requests == 0 and not self.server_state.tasks
