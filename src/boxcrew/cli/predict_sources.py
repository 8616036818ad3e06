"""The sources of images that `boxcrew predict` understands: files, stdin, URLs, videos and cameras."""

from __future__ import annotations

import http.client
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

from boxcrew.api.images import find_images
from boxcrew.core.errors import DataError, UsageError
from boxcrew.core.units import format_bytes
from boxcrew.core.version import VERSION
from boxcrew.data.images.source_image import EncodedImage
from boxcrew.data.images.video import FrameSource, is_video, open_camera, open_video

UNDERSTOOD = (
    "give an image, a folder, a 'glob*.jpg', a .txt list of paths, a video, a camera (0), "
    "'-' for stdin, or a URL with download=true"
)
MAX_BYTES = 100 * 2**20  # of an image from stdin or a URL
SILENCE_SECONDS = 20.0  # that a server may take for an answer
DOWNLOAD_SECONDS = 120.0  # for all of an image

_DATA = "image data"  # what errors about undecodable data begin with


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedImage:
    """An image that is not a file."""

    name: str
    image: EncodedImage


def is_stream(source: str) -> bool:
    """Return whether a source is a video or a camera; a file or folder called 0 is no camera."""
    return is_video(source) or _is_camera(source)


def open_stream(source: str, *, stride: int) -> FrameSource:
    """Open a source of which `is_stream` is true."""
    if _is_camera(source):
        return open_camera(int(source), stride=stride)
    return open_video(Path(source), stride=stride)


def open_images(source: str, *, download: bool) -> list[Path] | NamedImage:
    """Return the files of a source, or its only image; `DataError` or `UsageError` if there is none."""
    if source == "-":
        return NamedImage(name="stdin", image=_decode(_read_stdin(), "source=-"))
    scheme, separator, _ = source.partition("://")
    if not separator:
        try:
            return find_images(source)
        except DataError as error:
            raise DataError(error.message, advice=UNDERSTOOD) from None
    if scheme not in {"http", "https"}:
        raise UsageError(f"source={source}: {scheme} is not understood", advice=UNDERSTOOD)
    if not download:
        problem = f"source={source}: a URL, and nothing is downloaded unless you say so"
        raise UsageError(problem, advice="add download=true")
    return NamedImage(name=source, image=_decode(_download(source), f"source={source}"))


def _is_camera(source: str) -> bool:
    return source.isdecimal() and not Path(source).exists()


def _decode(data: bytes, setting: str) -> EncodedImage:
    """Return an image whose pixels can be decoded; `DataError` if they cannot."""
    image = EncodedImage(data, name=_DATA)
    try:
        image.read()
        return image
    except DataError as error:
        raise DataError(f"{setting}: {error.message.removeprefix(f'{_DATA}: ')}") from None


def _read_stdin() -> bytes:
    if sys.stdin.isatty():
        advice = "boxcrew predict run=DIR source=- < photo.jpg"
        raise UsageError(
            "source=-: stdin is a terminal: an image must come from a file or program", advice=advice
        )
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not data:
        raise DataError("source=-: nothing came from stdin")
    return _limited(data, "source=-")


def _limited(data: bytes, setting: str) -> bytes:
    if len(data) > MAX_BYTES:
        raise DataError(f"{setting}: more than {format_bytes(MAX_BYTES)}")
    return data


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens http and https alone, so that no redirection leads to a file of this machine."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", f"boxcrew/{VERSION}")]
    return opener


def _download(url: str) -> bytes:
    setting, chunks, size = f"source={url}", list[bytes](), 0
    deadline = time.monotonic() + DOWNLOAD_SECONDS
    try:
        with _opener().open(url, timeout=SILENCE_SECONDS) as answer:
            while size <= MAX_BYTES and (chunk := answer.read1(1 << 16)):
                chunks.append(chunk)
                size += len(chunk)
                if time.monotonic() > deadline:
                    raise DataError(f"{setting}: not complete after {DOWNLOAD_SECONDS:.0f} s")
            if size <= MAX_BYTES and answer.length:
                raise DataError(f"{setting}: the connection ended {answer.length} bytes too early")
    except HTTPError as error:
        reason = str(error.reason).partition("\n")[0]
        raise DataError(f"{setting}: the server answers {error.code} {reason}") from None
    except URLError as error:
        raise DataError(
            f"{setting}: {_reason(error.reason)}", advice="check the URL and the network"
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(f"{setting}: {_reason(error)}", advice="check the URL and the network") from None
    return _limited(b"".join(chunks), setting)


def _reason(error: object) -> str:
    """Return what went wrong in words of the system, if it has some."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
