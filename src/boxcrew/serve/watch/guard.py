"""The guard before every route: it decides who may ask, and what a browser may do with the answer."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


def json_answer(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in JSON. It is ASCII: names of files and classes may hold what UTF-8 cannot."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers=dict(headers or {}), media_type="application/json")


def refusal(status: int, error: str, advice: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_answer({"error": error, "advice": advice}, status, headers)


class Guard:
    """Lets only reading requests through, from this machine's own pages or with the token."""

    def __init__(self, app: ASGIApp, *, token: str | None, is_loopback: bool) -> None:
        self._app = app
        self._token = token
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return why a request is not answered; None if it is."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if scope["method"] not in {"GET", "HEAD"}:
            return refusal(405, "this page only shows", "use GET", {"allow": "GET, HEAD"})
        host = _name_of(headers.get(b"host", b""))
        if self._is_loopback and host not in _LOOPBACK:
            # A foreign page whose name was made to lead here must not read what only this machine may see.
            return refusal(400, "unknown Host", "open the address that boxcrew watch has printed")
        if self._token is not None and scope["path"].startswith("/api/"):
            sent = headers.get(b"authorization", b"")
            if not hmac.compare_digest(sent, b"Bearer " + self._token.encode()):
                advice = "send the token that boxcrew watch was started with: Authorization: Bearer TOKEN"
                return refusal(401, "the token is missing or wrong", advice, {"www-authenticate": "Bearer"})
        return None


def _name_of(host: bytes) -> str:
    """Return the name in a Host header, without the port."""
    text = host.decode("latin-1").lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]
