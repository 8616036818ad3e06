"""The service as replicas on a cluster of Ray, which starts, watches and replaces them. Each is the same
application, with models and threads of its own; Ray's proxies take the connections.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import ray
from ray import serve as ray_serve
from starlette.types import ASGIApp

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.ray_cluster import cluster, is_own
from boxcrew.serve.accepted import DetectQuery, finder
from boxcrew.serve.admission import Deadline
from boxcrew.serve.app import build_app
from boxcrew.serve.listening import is_loopback
from boxcrew.serve.models import ModelSource
from boxcrew.serve.photo import PixelPhoto
from boxcrew.serve.refusals import RefusedError
from boxcrew.serve.service import Service
from boxcrew.serve.settings import ServeConfig

APPLICATION = "boxcrew"
"""The name of the application on the cluster."""

_LEAST_REPLICAS = 2  # photos are answered while one is replaced
_ONGOING_EACH = 8  # requests in a replica for each of its threads; others wait at the proxies
_QUEUED_EACH = 16  # requests at the proxies for each thread of all replicas, as one process would have
_HEALTH_SECONDS = 5.0
_GRACE = 2.0  # seconds after the deadline until a proxy answers instead of the replica


class ServiceReplica:
    """One replica of the service under Ray Serve. Ray sends it photos once its models have answered a first
    one.
    """

    def __init__(self, config: ServeConfig, sources: Sequence[ModelSource]) -> None:
        self._service = Service.of(config, sources)
        self._service.models.open()
        self._service.warm.set()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return build_app(self._service)

    async def check_health(self) -> None:
        """Answer a photo with each model: Ray replaces a replica that cannot, or takes too long."""
        photo = PixelPhoto(name="health", pixels=np.zeros((32, 32, 3), np.uint8))
        deadline = Deadline(time.perf_counter() + _HEALTH_SECONDS)
        for model in self._service.models.all():
            try:
                asked = DetectQuery(model=model, score=model.threshold, deadline=deadline)
                await self._service.pool.compute([finder(asked, photo)], deadline, _never)
            except RefusedError as error:
                if error.kind != "busy":  # photos of clients, each of which has a deadline
                    raise


async def _never() -> None:
    """Wait without an end: no client is there that could leave."""
    await asyncio.Event().wait()


def serve_on_ray(
    config: ServeConfig, sources: Sequence[ModelSource], announce: Callable[[str], object]
) -> None:
    """Answer requests until a signal ends the process, which takes the application from the cluster again.
    `announce` is called with the URL when all replicas are ready. `ModelError` if they cannot be.
    """
    absolute = [replace(source, path=source.path.resolve()) for source in sources]
    port = config.port or _free_port(config.host)
    with _serving():
        if APPLICATION in ray_serve.status().applications:
            advice = f"end it first: serve.delete({APPLICATION!r})"
            raise UsageError(f"on=ray: {APPLICATION} runs on this cluster already", advice=advice)
        everywhere = "HeadOnly" if is_loopback(config.host) else "EveryNode"
        options = {
            "host": config.host,
            "port": port,
            "request_timeout_s": config.timeout + _GRACE,
        }
        ray_serve.start(proxy_location=everywhere, http_options=options)
        try:
            ray_serve.run(deployment(config, absolute), name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            message = "on=ray: the replicas cannot start; Ray's messages above say why"
            raise ModelError(
                message, advice="every machine needs boxcrew[serve,ray] and the files"
            ) from error
        host = f"[{config.host}]" if ":" in config.host else config.host
        try:
            with _signals() as ended:
                announce(f"http://{host}:{port}")
                ended.wait()
        finally:
            ray_serve.delete(APPLICATION)


def deployment(config: ServeConfig, sources: Sequence[ModelSource]) -> Any:
    """Return the application for `ray.serve.run`: two replicas or more, as photos come in."""
    workers = config.workers or 1
    most = config.replicas or max(_LEAST_REPLICAS, math.floor(ray.cluster_resources()["CPU"] / workers))
    options = {
        "name": APPLICATION,
        "autoscaling_config": {
            "min_replicas": min(_LEAST_REPLICAS, most),
            "max_replicas": most,
            "target_ongoing_requests": 2 * workers,
        },
        "ray_actor_options": {"num_cpus": workers},
        "max_ongoing_requests": _ONGOING_EACH * workers,
        "max_queued_requests": config.queue or _QUEUED_EACH * workers * most,
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
        "health_check_timeout_s": 2 * _HEALTH_SECONDS,
        "graceful_shutdown_timeout_s": config.drain,
        "max_constructor_retry_count": 1,
        "logging_config": {"enable_access_log": False},  # the service has a log of its own
    }
    own = config.model_copy(update={"workers": workers})
    replica = ray_serve.deployment(**options)(ray_serve.ingress()(ServiceReplica))
    return replica.bind(own, tuple(sources))


@contextmanager
def _serving() -> Iterator[None]:
    """Have a cluster; what Ray Serve has started on one of this command alone ends before it."""
    with cluster():
        try:
            yield
        finally:
            if is_own():
                ray_serve.shutdown()


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM or SIGINT sets."""
    ended = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port
