"""The routes of the page: itself, and what it shows, in JSON."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from boxcrew.core.version import VERSION
from boxcrew.serve.page_files import page_response, read_page
from boxcrew.serve.refusals import Kind, RefusedError, json_response, refusal
from boxcrew.serve.security import HEADERS, AccessGuard, new_request_id
from boxcrew.serve.watch.curves import Cursor
from boxcrew.serve.watch.run import WatchedRun
from boxcrew.serve.watch.settings import WatchConfig
from boxcrew.serve.watch.watcher import Watcher

_PAGE = Path(__file__).parent / "page"


def build_app(config: WatchConfig) -> ASGIApp:
    """Return the application that shows the runs of the settings."""
    shown = _Routes(Watcher(config.run))
    routes = [
        Route("/", shown.index),
        Route("/static/{name}", shown.static),
        Route("/v2/health/live", shown.live),
        Route("/api/runs", shown.runs),
        Route("/api/run", shown.run),
        Route("/api/curves", shown.curves),
        Route("/api/picture", shown.picture),
    ]
    app = Starlette(
        routes=routes, exception_handlers=dict.fromkeys((RefusedError, HTTPException, Exception), _refuse)
    )
    app.router.redirect_slashes = False
    return AccessMiddleware(app, AccessGuard(token=config.token, host=config.host))


class AccessMiddleware:
    """Middleware that checks who may see the page, and adds headers to all answers."""

    def __init__(self, app: ASGIApp, guard: AccessGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is offered
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._app
        try:
            self._guard.require(scope["path"], Headers(scope=scope))
        except RefusedError as error:
            answer = error.response(new_request_id())
        await answer(scope, receive, send_with_headers)


class _Routes:
    """The routes. Those that read runs are called in threads, since files may be slow."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._page = read_page(_PAGE)

    async def index(self, request: Request) -> Response:
        return page_response(self._page, "index.html", request)

    async def static(self, request: Request) -> Response:
        return page_response(self._page, request.path_params["name"], request)

    async def live(self, _: Request) -> Response:
        return json_response({"live": True})

    def runs(self, _: Request) -> Response:
        return json_response({"version": VERSION, "runs": self._watcher.overviews()})

    def run(self, request: Request) -> Response:
        details = self._watcher.details(request.query_params.get("run", ""))
        if details is None:
            raise _unknown_run()
        return json_response(details)

    def curves(self, request: Request) -> Response:
        has = [Cursor.of(request.query_params.get(name, "")) for name in ("training", "evaluations")]
        return json_response(self._named(request).curves(*has))

    def picture(self, request: Request) -> Response:
        picture = self._named(request).picture(request.query_params.get("name", ""))
        if picture is None:
            raise RefusedError(404, "not_found", "no such picture", advice="GET /api/run?run= lists them")
        content, kind = picture
        return Response(content, media_type=kind)

    def _named(self, request: Request) -> WatchedRun:
        run = self._watcher.runs().get(request.query_params.get("run", ""))
        if run is None:
            raise _unknown_run()
        return run


def _unknown_run() -> RefusedError:
    return RefusedError(404, "not_found", "no such run", advice="GET /api/runs lists those that there are")


def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        is_method = error.status_code == 405
        kind: Kind = "method_not_allowed" if is_method else "not_found"
        message = "this page only shows" if is_method else "no such page"
        error = RefusedError(error.status_code, kind, message, advice="GET /", headers=error.headers)
    return refusal(error).response(new_request_id())
