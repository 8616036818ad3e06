"""The example with the routes of the lectures runs, and is as short as it says."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from boxcrew.data.images.reading import decode_image, encode_image
from tests.helpers.served import form

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "serve" / "course.py"


@pytest.fixture(scope="module")
def photo() -> bytes:
    return encode_image(np.full((60, 80, 3), 90, np.uint8))


@pytest.fixture(scope="module")
def port(exported_run: Path) -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
    words = [sys.executable, str(EXAMPLE), str(exported_run / "model.onnx"), str(number)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", number)) == 0:
                    break
            time.sleep(0.05)
        yield number
    finally:
        process.terminate()
        process.wait(10)


def ask(port: int, path: str, photo: bytes | None = None) -> tuple[int, bytes]:
    """Send a form as a browser does that has the page open."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body, headers = form({"photo.jpg": photo}) if photo is not None else (None, {})
    connection.request(
        "POST" if body else "GET", path, body, {**headers, "Origin": f"http://127.0.0.1:{port}"}
    )
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def test_a_photo_goes_to_both_routes(port: int, photo: bytes) -> None:
    status, page = ask(port, "/")
    assert status == 200
    picture_route, json_route = re.findall(r'action="([^"]+)"', page.decode())
    status, picture = ask(port, picture_route, photo)
    assert status == 200
    assert decode_image(picture).shape == decode_image(photo).shape
    status, text = ask(port, json_route, photo)
    assert status == 200
    assert json.loads(text)["results"][0]["name"] == "photo.jpg"


def test_the_limits_are_those_of_the_service(port: int) -> None:
    for path in ("/api/v1", "/api/v2"):
        status, text = ask(port, path, b"no photo")
        assert status == 415
        assert json.loads(text)["advice"]
    assert ask(port, "/api/v3")[0] == 404
    assert ask(port, "/v2/health/ready")[0] == 200
