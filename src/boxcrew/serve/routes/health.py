"""Answers whether the service lives, and whether it can answer photos. This never waits behind photos."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.serve.refusals import json_response
from boxcrew.serve.service import service_of


async def live(_: Request) -> Response:
    """Say that the process answers."""
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """Answer whether photos can be sent: 503 until every model has answered one, and again when the service
    ends.
    """
    is_ready = service_of(request).is_ready
    return json_response({"ready": is_ready}, status=200 if is_ready else 503)


async def metrics(request: Request) -> Response:
    """Return what was counted."""
    text = service_of(request).metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [Route("/v2/health/live", live), Route("/v2/health/ready", ready), Route("/metrics", metrics)]
