"""More than can be answered: who is refused, what is awaited, and how the service ends."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from boxcrew.serve.app import build_app
from boxcrew.serve.models import ModelSource
from boxcrew.serve.service import Service
from boxcrew.serve.settings import ServeConfig
from tests.helpers.bad_photos import photo, png
from tests.helpers.served import Answer, Served, form, served

DETECT = "/v1/detect"
SLOW = png(4500, 4500, bytes(4501 * 4500))
"""A photo of a few kilobytes that takes some tenths of a second."""


@pytest.fixture(scope="module")
def narrow(exported_run: Path) -> Iterator[Served]:
    """A service with one worker and room for three photos."""
    with served(f"run={exported_run / 'model.onnx'}", "workers=1", "queue=3", "timeout=30") as running:
        yield running
        assert running.log("failure") == []


def at_once(num: int, ask: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(num) as clients:
        return [future.result() for future in [clients.submit(ask) for _ in range(num)]]


def test_a_full_service_says_when_to_ask_again(narrow: Served) -> None:
    answers = at_once(12, lambda: narrow.ask(DETECT, SLOW))
    codes = Counter(answer.status for answer in answers)
    assert set(codes) == {200, 429}
    for answer in answers:
        if answer.status == 429:
            assert 1 <= int(answer.headers["retry-after"]) <= 30
            assert answer.json["advice"].startswith("ask again in")
    assert narrow.ask(DETECT, photo()).status == 200


def test_health_does_not_wait_behind_photos(narrow: Served) -> None:
    with ThreadPoolExecutor(3) as clients:
        slow = [clients.submit(narrow.ask, DETECT, SLOW) for _ in range(3)]
        while not all(future.done() for future in slow):
            assert narrow.ask("/v2/health/live").status == 200
            assert narrow.ask("/v2/health/ready").status == 200


def test_nobody_waits_past_the_deadline(narrow: Served) -> None:
    body, headers = form({str(number): SLOW for number in range(3)})
    start = time.perf_counter()
    answer = narrow.ask(DETECT, body, headers={**headers, "X-Timeout": "0.2"})
    assert answer.status == 504
    assert time.perf_counter() - start < 5
    assert "X-Timeout" in answer.json["advice"]


def test_more_photos_than_may_wait_are_taken_by_an_idle_service(narrow: Served) -> None:
    while "boxcrew_queue_photos 0.0" not in narrow.ask("/metrics").body.decode():
        time.sleep(0.05)
    body, headers = form({str(number): photo() for number in range(16)})
    assert len(narrow.ask(DETECT, body, headers=headers).json["results"]) == 16


def in_flight(service: Served, num: int) -> list[Future[Answer]]:
    """Return requests that the service has accepted, and not answered."""
    clients = ThreadPoolExecutor(num)
    futures = [clients.submit(service.ask, DETECT, SLOW) for _ in range(num)]
    while True:
        text = service.ask("/metrics").body.decode()
        (num_open,) = re.findall(r"^boxcrew_open_requests (\d+)", text, re.MULTILINE)
        if int(num_open) + sum(future.done() for future in futures) >= num:
            return futures


def test_a_signal_loses_nothing_that_was_accepted(exported_run: Path) -> None:
    with served(f"run={exported_run / 'model.onnx'}", "workers=1", "timeout=30") as service:
        futures = in_flight(service, 8)
        service.process.send_signal(signal.SIGTERM)
        while (ready := service.ask("/v2/health/ready")).status == 200:
            pass
        assert ready.status == 503
        refused = service.ask(DETECT, photo())
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        assert [future.result().status for future in futures] == [200] * 8
        assert service.process.wait(20) == 0


def test_it_ends_in_time_whatever_clients_do(exported_run: Path) -> None:
    head = b"POST /v1/detect HTTP/1.1\r\nHost: localhost\r\nX-Timeout: 100\r\nContent-Length: 9000\r\n\r\n"
    with (
        served(f"run={exported_run / 'model.onnx'}", "drain=0.3s") as service,
        socket.create_connection(("127.0.0.1", service.port)) as idle,
        socket.create_connection(("127.0.0.1", service.port)) as slow,
    ):
        idle.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.sendall(head)
        while "boxcrew_open_requests 1.0" not in service.ask("/metrics").body.decode():
            pass
        assert service.end() == 0


def test_photos_are_refused_until_the_model_has_answered(exported_run: Path, photo: bytes) -> None:
    config = ServeConfig.of({"run": str(exported_run / "model.onnx")})
    service = Service.of(config, [ModelSource(name="model", path=exported_run / "model.onnx")])
    app = build_app(service)
    assert asyncio.run(ask_app(app, "/v2/health/live", b"")) == 200
    assert asyncio.run(ask_app(app, "/v2/health/ready", b"")) == 503
    assert asyncio.run(ask_app(app, DETECT, photo)) == 503
    service.models.open()
    service.warm.set()
    assert asyncio.run(ask_app(app, "/v2/health/ready", b"")) == 200
    assert asyncio.run(ask_app(app, DETECT, photo)) == 200
    service.pool.close()


async def ask_app(app: Any, path: str, body: bytes) -> int:
    """Return the status of an answer of an application in this process."""
    statuses: list[int] = []
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "method": "POST" if body else "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())],
    }

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


@pytest.fixture
def replaceable(exported_run: Path, tmp_path: Path) -> Path:
    """A model file that tests may replace."""
    return Path(shutil.copy(exported_run / "model.onnx", tmp_path / "shelf.onnx"))


def replace(path: Path, content: bytes) -> None:
    """Put another file in its place, as an export does."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def test_models_are_swapped_under_load(exported_run: Path, replaceable: Path) -> None:
    files = [(exported_run / name).read_bytes() for name in ("model-nms.onnx", "model.onnx")]
    with served(f"run={replaceable}", "queue=64") as service:
        stop = threading.Event()
        answers: list[Answer] = []

        def keep_asking() -> None:
            while not stop.is_set():
                answers.append(service.ask(DETECT, photo()))

        clients = [threading.Thread(target=keep_asking) for _ in range(3)]
        for client in clients:
            client.start()
        versions = set()
        for number in range(20):
            replace(replaceable, files[number % 2])
            answer = service.ask("/v1/models/shelf/reload", b"")
            assert answer.status == 200, answer.body
            versions.add(answer.json["version"])
        stop.set()
        for client in clients:
            client.join()
        assert {answer.status for answer in answers} == {200}
        assert {answer.json["model"]["version"] for answer in answers} == versions
        assert len(versions) == 2


def test_a_broken_file_leaves_the_old_model(exported_run: Path, replaceable: Path) -> None:
    whole = replaceable.read_bytes()
    with served(f"run={replaceable}", "follow=true") as service:
        old = service.ask("/v1/models/shelf").json
        for broken in (whole[:-1000], b"", b"not a model", whole[:5000] + b"\0" + whole[5001:]):
            replace(replaceable, broken)
            answer = service.ask("/v1/models/shelf/reload", b"")
            assert answer.status == 409
            assert "the old one stays in use" in answer.json["error"]
            assert str(replaceable) not in answer.body.decode()
            assert service.ask(DETECT, photo()).json["model"]["version"] == old["version"]
        replaceable.unlink()
        assert service.ask("/v1/models/shelf/reload", b"").status == 409
        assert service.log("reload")[0]["error"]
        replace(replaceable, (exported_run / "model-nms.onnx").read_bytes())
        while service.ask("/v1/models/shelf").json["version"] == old["version"]:
            time.sleep(0.05)  # until the change is seen


def test_several_models(exported_run: Path, photo: bytes) -> None:
    files = (
        f"runs={exported_run / 'model.onnx'},{exported_run / 'model-nms.onnx'},{exported_run / 'model.onnx'}"
    )
    with served(files) as service:
        assert [model["name"] for model in service.ask("/v1/models").json] == [
            "model",
            "model-nms",
            "model-2",
        ]
        assert service.ask(DETECT, photo).status == 400
        answers = [service.ask(f"{DETECT}?model={name}&score=0.02", photo) for name in ("model", "model-nms")]
        first, second = (answer.json["results"][0]["detections"] for answer in answers)
        assert len(first) == len(second) > 0
        version = answers[0].json["model"]["version"]
        assert service.ask(f"{DETECT}?model=model@{version}", photo).status == 200
