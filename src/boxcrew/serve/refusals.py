"""Requests that are refused: a status, what is wrong, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from starlette.responses import Response

from boxcrew.core.errors import BoxcrewError, DataError, ExportError, ModelError, UsageError
from boxcrew.data.images.reading import ImageError

Kind = Literal[
    "bad_request",
    "unauthorized",
    "foreign_origin",
    "not_found",
    "method_not_allowed",
    "slow_upload",
    "broken_model",
    "too_large",
    "unsupported",
    "unreadable_photo",
    "busy",
    "not_ready",
    "deadline",
    "client_gone",
    "internal",
]
"""The kinds of errors, which metrics count."""

_IMAGE_STATUS: Mapping[str, tuple[int, Kind]] = {
    "image-bomb": (413, "too_large"),
    "not-an-image": (415, "unsupported"),
}


class RefusedError(Exception):
    """A request that is not answered, and why."""

    def __init__(
        self,
        status: int,
        kind: Kind,
        message: str,
        *,
        advice: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.advice = status, kind, message, advice
        self.headers = dict(headers or {})

    def response(self, request_id: str) -> Response:
        """Return the answer that says so."""
        content = {"error": self.message, "advice": self.advice, "request": request_id}
        return json_response(content, status=self.status, headers=self.headers)


def json_response(
    content: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer in JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(
        text.encode("utf-8", "replace"), status, headers=dict(headers or {}), media_type="application/json"
    )


def refusal(error: Exception) -> RefusedError:
    """Return what a client gets to know about an error. What is not the client's fault is not explained:
    messages may name files of the server.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ImageError):
        status, kind = _IMAGE_STATUS.get(error.kind, (422, "unreadable_photo"))
        advice = error.advice if kind == "unsupported" else "send the photo whole, as JPEG or PNG"
        return RefusedError(status, kind, error.message, advice=advice)
    if isinstance(error, UsageError):
        return RefusedError(400, "bad_request", error.message, advice=error.advice)
    if isinstance(error, DataError):
        return RefusedError(422, "unreadable_photo", error.message, advice=error.advice)
    if isinstance(error, ModelError | ExportError | BoxcrewError):
        return RefusedError(
            409, "broken_model", "the model cannot be used", advice="the log of the service says why"
        )
    return RefusedError(500, "internal", "the service failed", advice="its log has more under this request")
