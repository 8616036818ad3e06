"""Decides who may ask: with a token, or from this machine, but not from a page of another site."""

from __future__ import annotations

import base64
import hmac
import secrets
import string
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from boxcrew.serve.refusals import RefusedError

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; media-src 'self' blob:; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
"""The headers of every answer: browsers load nothing from elsewhere, and show it in no other page."""

_HEALTH = "/v2/health/"  # says nothing about anyone, and programs that ask it may name no host
_OPEN_PATHS = (_HEALTH, "/static/")
_OPEN_PAGES = frozenset({"/", "/docs", "/openapi.json"})
_BASIC = ("/setup", "/predict", "/health")  # Label Studio sends a user and a password, not a token

_ID_LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
_MOST_ID = 64
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class AccessGuard:
    """Decides which requests come in. Without a token the service answers programs of this machine alone:
    a page of another site that is open in a browser here is refused, whatever name it has given the machine.
    """

    def __init__(self, *, token: str | None, host: str) -> None:
        self._token = None if token is None else token.encode()
        self._names = _LOCAL_NAMES | {host}

    def require(self, path: str, headers: Headers) -> None:
        """Raise `RefusedError` unless the request may come in."""
        if self._token is None:
            if not path.startswith(_HEALTH):
                self._require_local(headers)
        elif not is_open(path):
            header = headers.get("authorization", "")
            self._require_token(self._token, _as_bearer(header) if path.endswith(_BASIC) else header)

    @staticmethod
    def _require_token(token: bytes, header: str) -> None:
        kind, _, sent = header.partition(" ")
        is_right = hmac.compare_digest(sent.strip().encode(), token)
        if not (is_right and kind.lower() == "bearer"):
            raise RefusedError(
                401,
                "unauthorized",
                "the token is missing or wrong",
                advice="send it in a header: Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _require_local(self, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if _host_name(host) not in self._names:
            message = "Host: is not a name of this machine"
            raise RefusedError(
                400, "foreign_origin", message, advice="use http://127.0.0.1 or http://localhost"
            )
        if origin is not None and _origin_host(origin) != host.lower():
            message = "Origin: another site may not use this service"
            raise RefusedError(400, "foreign_origin", message, advice="give the service a token, and send it")


def _as_bearer(header: str) -> str:
    """Return the header of a token that is sent as a password, of any user; others as they are."""
    kind, _, sent = header.partition(" ")
    if kind.lower() != "basic":
        return header
    try:
        _, _, password = base64.b64decode(sent.strip(), validate=True).decode().partition(":")
    except ValueError:
        return ""
    return f"Bearer {password}"


def is_open(path: str) -> bool:
    """Return whether a path needs no token."""
    return path in _OPEN_PAGES or path.startswith(_OPEN_PATHS)


def _origin_host(origin: str) -> str:
    """Return the host and port of an origin; empty if it has none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def new_request_id() -> str:
    return secrets.token_hex(8)


def is_request_id(text: str) -> bool:
    """Return whether a client's id can be repeated in headers and logs."""
    return 0 < len(text) <= _MOST_ID and set(text) <= _ID_LETTERS
