"""The service from outside: a process that is asked over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from boxcrew import Detector
from boxcrew.data.images.reading import encode_image
from tests.api.test_same_as_val import KINDS, scene
from tests.helpers.served import Served, form

SCORE = 0.02


@pytest.fixture(scope="module")
def detector(exported_run: Path) -> Detector:
    return Detector.load(exported_run / "model.onnx")


@pytest.mark.parametrize("name", KINDS)
def test_it_finds_what_predict_finds(name: str, service: Served, detector: Detector, tmp_path: Path) -> None:
    size, save = KINDS[name]
    save(scene(size, 1), tmp_path / name)
    content = next(tmp_path.iterdir()).read_bytes()
    answer = service.ask(f"/v1/detect?score={SCORE}", content)
    assert answer.status == 200
    (result,) = answer.json["results"]
    expected = detector.predict(content, score=SCORE)
    assert (result["width"], result["height"]) == expected.source.extent
    assert [found["name"] for found in result["detections"]] == expected.names
    assert len(expected) > 0
    boxes = np.array([found["box"] for found in result["detections"]])
    scores = np.array([found["score"] for found in result["detections"]])
    assert np.abs(boxes - expected.boxes).max() < 0.01
    assert np.abs(scores - expected.scores).max() < 1e-4
    assert set(result["milliseconds"]) == {"decode", "queue", "network", "post"}


def test_several_photos_in_a_form(service: Served, photo: bytes) -> None:
    body, headers = form({"a.jpg": photo, "b/../ü b.jpg": photo})
    answer = service.ask("/v1/detect", body, headers=headers)
    assert [result["name"] for result in answer.json["results"]] == ["a.jpg", "ü b.jpg"]


def test_a_photo_that_curl_takes_for_a_form(service: Served, photo: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert service.ask("/v1/detect", photo, headers=headers).status == 200


def test_coco_results(service: Served, photo: bytes) -> None:
    plain = service.ask(f"/v1/detect?score={SCORE}", photo).json["results"][0]["detections"]
    coco = service.ask(f"/v1/detect?score={SCORE}&format=coco", photo).json
    assert len(coco) == len(plain) > 0
    x0, y0, x1, y1 = plain[0]["box"]
    assert coco[0]["bbox"] == pytest.approx([x0, y0, x1 - x0, y1 - y0], abs=2e-3)
    assert coco[0]["category_id"] == plain[0]["label"] + 1
    assert coco[0]["image_id"] == 1


def test_a_picture_with_boxes(service: Served, photo: bytes, detector: Detector) -> None:
    answer = service.ask(f"/v1/detect?score={SCORE}&format=image", photo)
    assert answer.headers["content-type"] == "image/jpeg"
    expected = detector.predict(photo, score=SCORE)
    assert len(expected) > 0
    assert answer.body == encode_image(expected.plot(), quality=90)


def test_models(service: Served, detector: Detector) -> None:
    (model,) = service.ask("/v1/models").json
    assert model == {**service.ask("/v1/models/model").json, "milliseconds": model["milliseconds"]}
    assert model["classes"] == list(detector.classes)
    assert len(model["colors"]) == len(model["classes"])
    assert model["size"] == 96
    digest = model["digest"]
    assert service.ask(f"/v1/models/model%40{digest}").status == 200


def test_health_and_metrics(service: Served, photo: bytes) -> None:
    service.ask("/v1/detect", photo)
    assert service.ask("/v2/health/live").json == {"live": True}
    assert service.ask("/v2/health/ready").json == {"ready": True}
    text = service.ask("/metrics").body.decode()
    assert 'boxcrew_requests_total{code="200",route="detect"}' in text
    assert 'boxcrew_photo_seconds_count{stage="queue"}' in text


def test_the_log_has_requests_without_their_photos(service: Served, photo: bytes) -> None:
    body, headers = form({"secret-name.jpg": photo})
    service.ask("/v1/detect", body, headers={**headers, "X-Request-Id": "my-id.1"})
    for _ in range(200):  # the line is written after the answer
        if records := [record for record in service.log() if record["request"] == "my-id.1"]:
            break
        time.sleep(0.02)
    (record,) = records
    assert record["status"] == 200
    assert record["photos"] == 1
    assert record["bytes"] == len(body)
    assert "secret-name" not in json.dumps(service.lines)


def test_security_headers(service: Served) -> None:
    for path in ("/v1/models", "/nothing", "/v2/health/live"):
        headers = service.ask(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_it_needs_no_torch() -> None:
    code = "import sys, boxcrew.serve.run; sys.exit('torch' in sys.modules or 'timm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
