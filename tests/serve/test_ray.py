"""The service as replicas of Ray: a cluster on this machine, asked over HTTP, where Ray is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from boxcrew import Detector
from boxcrew.core.errors import UsageError
from boxcrew.serve.settings import ServeConfig
from tests.helpers.served import Answer, Served, served

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'boxcrew[serve,ray]'")

SCORE = 0.02


@pytest.fixture(scope="module")
def cluster(exported_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    words = (f"run={exported_run / 'model.onnx'}", "on=ray", "replicas=2")
    with served(*words, environment={"HOME": str(home)}) as running:
        yield running
        assert running.end() == 0
    assert not (home / ".ray").exists()


def replicas(cluster: Served) -> list[psutil.Process]:
    """The processes of replicas that descend from our command."""
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    return [child for child in children if "ServeReplica" in _command(child)]


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


@needs_ray
def test_replicas_answer_as_predict(cluster: Served, photo: bytes, exported_run: Path) -> None:
    answer = cluster.ask(f"/v1/detect?score={SCORE}", photo, headers={"X-Request-Id": "mine"})
    expected = Detector.load(exported_run / "model.onnx").predict(photo, score=SCORE)
    assert [found["name"] for found in answer.json["results"][0]["detections"]] == expected.names
    assert len(expected) > 0
    assert answer.json["request"] == answer.headers["x-request-id"] == "mine"
    assert cluster.ask("/v2/models/model/ready").json["ready"]
    assert cluster.ask("/v1/detect", b"no photo").status == 415
    assert cluster.ask("/v1/models/model/reload", b"").status == 409
    assert cluster.ask("/v1/models", headers={"Host": "elsewhere.example"}).status == 400


@needs_ray
def test_a_killed_replica_is_replaced(cluster: Served, photo: bytes) -> None:
    before = replicas(cluster)
    assert len(before) == 2
    answers: list[Answer] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            answers.append(cluster.ask("/v1/detect", photo))

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    while len(answers) < 10:
        time.sleep(0.01)
    before[0].kill()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        alive = replicas(cluster)
        if len(alive) == 2 and before[0] not in alive:
            break
        time.sleep(0.2)
    stop.set()
    for client in clients:
        client.join()
    assert before[0] not in alive
    assert len(alive) == 2
    failed = [answer for answer in answers if answer.status != 200]
    # Those that the killed replica was answering are lost, and say so.
    assert len(failed) <= len(clients), [answer.body for answer in failed]
    assert cluster.ask("/v1/detect", photo).status == 200


def test_settings_that_do_not_go_together() -> None:
    for words in ({"on": "ray", "follow": True}, {"replicas": 3}):
        with pytest.raises(UsageError):
            ServeConfig.of({"run": "model.onnx", **words})


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_it_says_what_to_install(exported_run: Path) -> None:
    words = [sys.executable, "-m", "boxcrew", "serve", f"run={exported_run / 'model.onnx'}", "on=ray"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "pip install 'boxcrew[serve,ray]'" in done.stderr
