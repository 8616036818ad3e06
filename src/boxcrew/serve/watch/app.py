"""The routes of the page: itself, and what it shows, in JSON."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from boxcrew.core.version import VERSION
from boxcrew.serve.watch.curves import Cursor
from boxcrew.serve.watch.guard import Guard, json_answer, refusal
from boxcrew.serve.watch.run import WatchedRun
from boxcrew.serve.watch.settings import WatchConfig
from boxcrew.serve.watch.watcher import Watcher

PAGE = Path(__file__).parent / "page"


def build_app(config: WatchConfig) -> ASGIApp:
    """Return the application that shows the runs of the settings."""
    routes = _Routes(Watcher(config.run))
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/health", _health),
            Route("/api/runs", routes.runs),
            Route("/api/run", routes.run),
            Route("/api/curves", routes.curves),
            Route("/api/picture", routes.picture),
            Mount("/static", StaticFiles(directory=PAGE)),
        ],
        exception_handlers={HTTPException: _not_found},
    )
    return Guard(app, token=config.token, is_loopback=config.is_loopback)


class _Routes:
    """The routes that read runs. Starlette calls each in a thread of its own, since files may be slow."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def runs(self, _: Request) -> Response:
        return json_answer({"version": VERSION, "runs": self._watcher.overviews()})

    def run(self, request: Request) -> Response:
        details = self._watcher.details(request.query_params.get("run", ""))
        return json_answer(details) if details is not None else _unknown_run()

    def curves(self, request: Request) -> Response:
        run = self._named(request)
        if run is None:
            return _unknown_run()
        has = [Cursor.of(request.query_params.get(name, "")) for name in ("training", "evaluations")]
        return json_answer(run.curves(*has))

    def picture(self, request: Request) -> Response:
        run = self._named(request)
        found = None if run is None else run.picture(request.query_params.get("name", ""))
        if found is None:
            return refusal(404, "no such picture", "/api/run lists those that there are")
        content, kind = found
        return Response(content, media_type=kind)

    def _named(self, request: Request) -> WatchedRun | None:
        return self._watcher.runs().get(request.query_params.get("run", ""))


def _page(_: Request) -> Response:
    return FileResponse(PAGE / "index.html")


def _health(_: Request) -> Response:
    return json_answer({"live": True})


def _unknown_run() -> Response:
    return refusal(404, "no such run", "/api/runs lists those that there are")


def _not_found(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return refusal(status, "no such page", "begin at /")
