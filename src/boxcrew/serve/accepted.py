"""Answers the photos of an accepted request, whatever protocol they came by."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from boxcrew.serve.admission import Deadline
from boxcrew.serve.detecting import Finding, find
from boxcrew.serve.models import ServedModel
from boxcrew.serve.photo import NamedPhoto
from boxcrew.serve.service import service_of


@dataclass(frozen=True, kw_only=True)
class DetectQuery:
    """The part of a request that is the same for all of its photos."""

    model: ServedModel
    score: float  # of the objects that are asked for, at least
    deadline: Deadline


async def find_photos(request: Request, asked: DetectQuery, photos: Sequence[NamedPhoto]) -> list[Finding]:
    """Detect objects in the photos of a request, and count them."""
    works = [finder(asked, photo) for photo in photos]
    return await _compute(request, works, asked.deadline)


async def draw_photo(
    request: Request, asked: DetectQuery, photo: NamedPhoto, draw: Callable[[Finding], bytes]
) -> bytes:
    """Detect objects in a photo and draw them, which is one piece of work: it is accepted as a whole."""
    find_it, pictures = finder(asked, photo), []

    def work() -> Finding:
        finding = find_it()
        pictures.append(draw(finding))
        return finding

    await _compute(request, [work], asked.deadline)
    return pictures[0]


async def _compute(
    request: Request, works: Sequence[Callable[[], Finding]], deadline: Deadline
) -> list[Finding]:
    service, state = service_of(request), request.scope["state"]
    state["photos"] = state.get("photos", 0) + len(works)
    findings = await service.pool.compute(works, deadline, partial(client_left, request))
    for finding in findings:
        service.metrics.photo(finding.milliseconds)
    return findings


def finder(asked: DetectQuery, photo: NamedPhoto) -> Callable[[], Finding]:
    """Return the work of detecting objects in a photo, whose wait begins now."""
    submitted = time.perf_counter()
    predictor = asked.model.predictor.above(asked.score)

    def work() -> Finding:
        waited = time.perf_counter() - submitted
        finding = find(predictor, photo, queue_seconds=waited, require_time=asked.deadline.require)
        stages = {name: ms for name, ms in finding.milliseconds.items() if name != "queue"}
        asked.model.times.add(stages)
        return finding

    return work


async def client_left(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
