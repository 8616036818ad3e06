"""The two routes of the lectures' web demo, on top of the service: python course.py model.onnx [PORT]"""

import sys
from pathlib import Path

import uvicorn
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from boxcrew.serve.app import build_app
from boxcrew.serve.models import ModelSource
from boxcrew.serve.protocol import Protocol
from boxcrew.serve.service import Service
from boxcrew.serve.settings import ServeConfig

ROUTES = {"/api/v1": b"format=image", "/api/v2": b"format=json"}  # a picture with boxes; the boxes
FORM = (
    '<form action="{0}" method="post" enctype="multipart/form-data">'
    '{0} <input type="file" name="photo"> <button>Send</button></form>'
)
PAGE = HTMLResponse("<!doctype html>" + "".join(map(FORM.format, ROUTES)))


def with_course(app: ASGIApp) -> ASGIApp:
    """Return an application with the page and the routes of the lectures; the rest is the service's."""

    async def course(scope: Scope, receive: Receive, send: Send) -> None:
        if (path := scope.get("path")) in ROUTES:  # an upload goes through all limits of the service
            scope = {**scope, "path": "/v1/detect", "query_string": ROUTES[path]}
        await (PAGE if path == "/" else app)(scope, receive, send)

    return course


if __name__ == "__main__":
    file, port = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    service = Service.of(ServeConfig(run=str(file)), [ModelSource(name=file.stem, path=file)])
    service.models.open()
    service.warm.set()
    uvicorn.run(with_course(build_app(service)), port=port, http=Protocol, lifespan="off")
