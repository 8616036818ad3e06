"""Reads the photos of a request, and counts while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from boxcrew.serve.admission import Deadline, RequestBytes, late
from boxcrew.serve.photo import Photo
from boxcrew.serve.refusals import RefusedError

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of a request, at most."""
MAX_PHOTOS = 16
"""Photos of a request, at most."""

_NAME_LETTERS = 120  # of a file's name that are repeated in the answer
_MOST_PART_HEADERS = 8
_STALL = 0.5  # seconds after a deadline in which a process that runs notices it
_UNTYPED = frozenset({b"", b"application/octet-stream", b"application/x-www-form-urlencoded"})
"""What clients say that do not know what they send; the last is curl's, for --data-binary."""
_USAGE = "send the bytes of a photo with Content-Type: image/jpeg, or files as multipart/form-data"


async def read_photos(request: Request, held: RequestBytes, deadline: Deadline) -> list[Photo]:
    """Return the photos of a request: its body, or the files of a form."""
    kind, options = parse_options_header(request.headers.get("content-type"))
    _require_plain(request)
    chunks = _chunks(request, held)
    try:
        async with asyncio.timeout(deadline.remaining()):
            if kind == b"multipart/form-data":
                return await _read_form(chunks, options.get(b"boundary", b""))
            if kind.startswith(b"image/") or kind in _UNTYPED:
                return [Photo(name="image", data=b"".join([chunk async for chunk in chunks]))]
    except TimeoutError:
        raise _not_in_time(deadline) from None
    message = f"Content-Type: {_printable(kind.decode('latin-1'))} is not a photo"
    raise RefusedError(415, "unsupported", message, advice=_USAGE)


async def read_body(request: Request, held: RequestBytes, deadline: Deadline) -> bytes:
    """Return the whole body of a request."""
    _require_plain(request)
    try:
        async with asyncio.timeout(deadline.remaining()):
            return b"".join([chunk async for chunk in _chunks(request, held)])
    except TimeoutError:
        raise _not_in_time(deadline) from None


def _require_plain(request: Request) -> None:
    """Refuse a compressed body, which could become any size."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        message = f"Content-Encoding: {_printable(encoding)} is not read"
        raise RefusedError(415, "unsupported", message, advice="send the photo as it is")


def _not_in_time(deadline: Deadline) -> RefusedError:
    """Return the error of a photo that had not arrived at its deadline. If that was noticed late, this
    process was stopped or starved: the photo may have been waiting to be read.
    """
    if deadline.overdue() > _STALL:
        return late()
    return RefusedError(408, "slow_upload", "the photo did not arrive in time", advice="send a smaller photo")


def too_large() -> RefusedError:
    """Return the error of a request with too many bytes."""
    message = f"more than {MAX_BYTES // 1024**2} MiB in one request"
    return RefusedError(413, "too_large", message, advice="send fewer or smaller photos")


async def _chunks(request: Request, held: RequestBytes) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. What it says about its length is believed only if it is too much."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BYTES:
        raise too_large()
    num = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise client_gone()
        chunk: bytes = message.get("body", b"")
        num += len(chunk)
        if num > MAX_BYTES:
            raise too_large()
        held.add(len(chunk))
        yield chunk
        if not message.get("more_body", False):
            return


def client_gone() -> RefusedError:
    """Return the error of a client that no longer waits, which nobody will read."""
    return RefusedError(408, "client_gone", "the client has gone")


async def _read_form(chunks: AsyncIterator[bytes], boundary: bytes) -> list[Photo]:
    form = _Form()
    try:
        if not boundary:
            raise FormParserError("there is no boundary")
        parser = MultipartParser(boundary, form.callbacks(), max_header_count=_MOST_PART_HEADERS)
        async for chunk in chunks:
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        message = f"not a form: {_printable(str(error))}"
        raise RefusedError(400, "bad_request", message, advice=_USAGE) from None
    if not form.is_complete:
        raise RefusedError(400, "bad_request", "the form is cut off", advice=_USAGE)
    if not form.photos:
        raise RefusedError(400, "bad_request", "the form has no file", advice=_USAGE)
    return form.photos


@dataclass
class _Part:
    """A part of a form that is being read."""

    header: bytes = b""
    value: bytes = b""
    disposition: bytes = b""
    content: bytearray | None = None


class _Form:
    """Collects the files of a form while it is parsed."""

    def __init__(self) -> None:
        self.photos: list[Photo] = []
        self.is_complete = False
        self._part = _Part()

    def callbacks(self) -> Any:
        """Return the functions that the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.photos) == MAX_PHOTOS:
            message = f"more than {MAX_PHOTOS} files in one request"
            raise RefusedError(413, "too_large", message, advice="send them in several requests")
        self._part = _Part()

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._part.header += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._part.value += data[start:end]

    def _end_header(self) -> None:
        if self._part.header.lower() == b"content-disposition":
            self._part.disposition = self._part.value
        self._part.header = self._part.value = b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._part.disposition)
        if b"filename" not in options:
            name = _printable(options.get(b"name", b"").decode("utf-8", "replace"))
            message = f"the form has a field {name!r} that is not a file"
            raise RefusedError(
                400, "bad_request", message, advice="settings are written in the URL: ?score=0.5"
            )
        self._part.content = bytearray()
        self._part.disposition = options[b"filename"]

    def _data(self, data: bytes, start: int, end: int) -> None:
        assert self._part.content is not None
        self._part.content += data[start:end]

    def _end_part(self) -> None:
        name = safe_name(self._part.disposition.decode("utf-8", "replace"))
        self.photos.append(Photo(name=name, data=bytes(self._part.content or b"")))

    def _end(self) -> None:
        self.is_complete = True


def safe_name(name: str) -> str:
    """Return the last part of a file's name, without letters that could mean something elsewhere."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return _printable(last)[:_NAME_LETTERS].strip(" .") or "image"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "�" for letter in text[: 4 * _NAME_LETTERS])
