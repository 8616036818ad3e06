"""Answers the photos of an accepted request, whatever protocol they came by."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from boxcrew.serve.admission import Deadline
from boxcrew.serve.detecting import Finding
from boxcrew.serve.models import Model
from boxcrew.serve.photo import Openable
from boxcrew.serve.service import service_of


async def find_photos(
    request: Request, model: Model, photos: Sequence[Openable], deadline: Deadline
) -> list[Finding]:
    """Detect objects in the photos of a request, and count them."""
    service, state = service_of(request), request.scope["state"]
    state["photos"] = state.get("photos", 0) + len(photos)
    findings = await service.pool.find(model, photos, deadline, client_left(request))
    for finding in findings:
        service.metrics.photo(finding.milliseconds)
    return findings


async def client_left(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
