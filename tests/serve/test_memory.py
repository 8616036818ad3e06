"""The memory of the service after photos that take much of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tests.helpers.bad_photos import png
from tests.helpers.served import served

LARGE = png(6000, 6000, bytes(6001 * 6000))
"""A photo that is 103 MiB of pixels."""


def test_what_photos_have_used_is_given_back(exported_run: Path) -> None:
    with served(f"run={exported_run / 'model.onnx'}", "timeout=60") as service:
        service.ask("/v1/detect", LARGE)
        time.sleep(1.5)
        process = psutil.Process(service.process.pid)
        before = process.memory_info().rss
        with ThreadPoolExecutor(4) as clients:
            answers = list(clients.map(lambda _: service.ask("/v1/detect", LARGE), range(8)))
        assert {answer.status for answer in answers} == {200}
        for _ in range(60):
            if process.memory_info().rss < before * 1.1:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"{before} bytes, then {process.memory_info().rss}")
