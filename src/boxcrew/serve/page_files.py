"""The files of the page in the browser, which are kept in memory: no request reaches the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from boxcrew.serve.refusals import RefusedError

FOLDER = Path(__file__).parent / "page"

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, kw_only=True)
class PageFile:
    content: bytes
    kind: str
    tag: str  # changes with the content

    def response(self, request: Request) -> Response:
        """Return the file, or that the browser has it already."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.kind, headers=headers)


def read_page(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """Return the files of a page by their path in its folder."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS and path.is_file())
    return {path.relative_to(folder).as_posix(): _read(path) for path in files}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return PageFile(content=content, kind=_KINDS[path.suffix], tag=tag)


def page_response(page: Mapping[str, PageFile], name: str, request: Request) -> Response:
    """Return a file of the page; `RefusedError` if there is none of that name."""
    if name not in page:
        raise RefusedError(404, "not_found", "no such page", advice="GET / is the page, /docs lists the rest")
    return page[name].response(request)
