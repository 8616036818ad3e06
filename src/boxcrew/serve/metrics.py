"""Counts requests and photos for Prometheus. Labels come from fixed sets only."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from boxcrew.serve.admission import Admission
from boxcrew.serve.refusals import Kind

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STAGES = ("decode", "queue", "network", "post")
"""The stages of a photo."""


class Metrics:
    """Counters of one service."""

    def __init__(self, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter(
            "boxcrew_requests", "Requests by route and status.", ["route", "code"], registry=own
        )
        self._errors = Counter("boxcrew_errors", "Refused requests by kind.", ["kind"], registry=own)
        self._photos = Counter("boxcrew_photos", "Photos that were answered.", registry=own)
        self._seconds = Histogram(
            "boxcrew_request_seconds", "Time of a request.", ["route"], buckets=_BUCKETS, registry=own
        )
        self._stages = Histogram(
            "boxcrew_photo_seconds", "Time of a stage of a photo.", ["stage"], buckets=_BUCKETS, registry=own
        )
        waiting = Gauge("boxcrew_queue_photos", "Photos that wait or are computed.", registry=own)
        waiting.set_function(lambda: admission.num_photos)
        accepted = Gauge("boxcrew_open_requests", "Requests accepted and not answered.", registry=own)
        accepted.set_function(lambda: admission.num_requests)
        for stage in STAGES:
            self._stages.labels(stage)

    def request(self, *, route: str, status: int, seconds: float) -> None:
        """Count an answer. `route` is the name of a handler, never a path of the client's."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def error(self, kind: Kind) -> None:
        """Count a request that was refused."""
        self._errors.labels(kind).inc()

    def photo(self, milliseconds: Mapping[str, float]) -> None:
        """Count a photo that was answered, with the time of its stages."""
        self._photos.inc()
        for stage, value in milliseconds.items():
            self._stages.labels(stage).observe(value / 1000)

    def text(self) -> bytes:
        """Return all in the format of Prometheus."""
        return generate_latest(self._registry)
