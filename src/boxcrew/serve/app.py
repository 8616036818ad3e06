"""The application: routes, and the outer layer around them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.core.errors import BoxcrewError
from boxcrew.serve.middleware import ServiceMiddleware, refusal_of
from boxcrew.serve.page_files import page_response, read_page
from boxcrew.serve.refusals import Kind, RefusedError, json_response
from boxcrew.serve.routes import detect, health, label_studio, models, open_inference
from boxcrew.serve.security import AccessGuard
from boxcrew.serve.service import Service

ROUTES = (*detect.ROUTES, *models.ROUTES, *health.ROUTES)
"""The service's own routes for programs; those of the page are beside them."""
PROTOCOLS = (*open_inference.ROUTES, *label_studio.ROUTES)
"""The routes of protocols that are described elsewhere."""

_KINDS: dict[int, Kind] = {404: "not_found", 405: "method_not_allowed"}


def build_app(service: Service) -> ServiceMiddleware:
    """Return the application of a service."""
    config = service.config
    handlers = dict.fromkeys((RefusedError, BoxcrewError, HTTPException, Exception), _refuse)
    app = Starlette(routes=[*ROUTES, *PROTOCOLS, *_page_routes()], exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.state.service = service
    guard = AccessGuard(token=config.token, host=config.host)
    return ServiceMiddleware(app, guard=guard, metrics=service.metrics, log=service.log)


def _page_routes() -> list[Route]:
    page = read_page()

    async def index(request: Request) -> Response:
        return page_response(page, "index.html", request)

    async def static(request: Request) -> Response:
        return page_response(page, request.path_params["name"], request)

    async def docs(request: Request) -> Response:
        return page_response(page, "docs.html", request)

    return [
        Route("/", index),
        Route("/docs", docs),
        Route("/openapi.json", description),
        Route("/static/{name:path}", static),
    ]


async def description(_: Request) -> Response:
    """Return the description of all routes."""
    from boxcrew.serve.openapi import openapi

    return json_response(openapi())


async def _refuse(request: Request, error: Exception) -> Response:
    """Return the answer to a request that failed."""
    return refusal_of(request.scope, _routing_error(error) if isinstance(error, HTTPException) else error)


def _routing_error(error: HTTPException) -> RefusedError:
    kind = _KINDS.get(error.status_code, "bad_request")
    message = {404: "no such route", 405: "this route does not take that method"}.get(
        error.status_code, "the request is not understood"
    )
    return RefusedError(
        error.status_code, kind, message, advice="GET /docs lists all routes", headers=error.headers
    )
