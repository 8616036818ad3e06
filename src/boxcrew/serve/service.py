"""All that requests share: settings, models, threads, and what has been counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from starlette.requests import Request

from boxcrew.hardware.probe import usable_cores
from boxcrew.serve.admission import Admission, Deadline
from boxcrew.serve.log import ServiceLog
from boxcrew.serve.metrics import Metrics
from boxcrew.serve.models import ModelSource, ModelStore
from boxcrew.serve.pool import Pool
from boxcrew.serve.refusals import RefusedError
from boxcrew.serve.settings import ServeConfig
from boxcrew.serve.uploads import MAX_BYTES, MAX_PHOTOS

_PHOTOS_EACH = 16  # that may wait for one worker
_HELD_REQUESTS = 8  # of the largest size that may be in memory at once
_TIMEOUT = (0.01, 600.0)  # seconds that a client may ask for


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """A service that is running."""

    config: ServeConfig
    models: ModelStore
    admission: Admission
    pool: Pool
    metrics: Metrics
    log: ServiceLog
    warm: threading.Event  # set when every model has answered

    @classmethod
    def of(cls, config: ServeConfig, sources: Sequence[ModelSource]) -> Self:
        """Return a service whose models are not open yet."""
        workers = config.workers or max(1, int(usable_cores()))
        admission = Admission(
            workers=workers,
            most_photos=config.queue or max(MAX_PHOTOS, _PHOTOS_EACH * workers),
            most_bytes=_HELD_REQUESTS * MAX_BYTES,
        )
        return cls(
            config=config,
            models=ModelStore(sources, engine=config.engine),
            admission=admission,
            pool=Pool(admission),
            metrics=Metrics(admission),
            log=ServiceLog(),
            warm=threading.Event(),
        )

    @property
    def is_ready(self) -> bool:
        return self.warm.is_set() and not self.admission.is_draining

    def require_ready(self) -> None:
        """Refuse requests until the models have answered, and while the service ends."""
        self.admission.require_open()
        if not self.warm.is_set():
            raise RefusedError(
                503,
                "not_ready",
                "the model is being loaded",
                advice="ask again",
                headers={"Retry-After": "1"},
            )

    def deadline(self, request: Request) -> Deadline:
        """Return until when a request has to be answered: its X-Timeout in seconds, or the usual time."""
        text = request.headers.get("x-timeout")
        seconds = self.config.timeout if text is None else _seconds(text)
        return Deadline(request.scope["state"]["arrived"] + seconds)


def _seconds(text: str) -> float:
    least, most = _TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= most:
        advice = f"give seconds, {least:g} to {most:g}"
        raise RefusedError(400, "bad_request", "X-Timeout: not a time", advice=advice)
    return seconds


def service_of(request: Request) -> Service:
    """Return the service that a request was sent to."""
    service: Service = request.app.state.service
    return service


def request_id_of(request: Request) -> str:
    """Return the id that stands in the answer and in the log."""
    request_id: str = request.scope["state"]["request_id"]
    return request_id
