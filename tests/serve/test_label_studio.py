"""The backend for Label Studio from outside, with requests as Label Studio sends them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew import Detector
from tests.helpers.served import Answer, Served, served

TOKEN = "a-token-of-tests"
BASIC = {"Authorization": "Basic " + base64.b64encode(f"label studio:{TOKEN}".encode()).decode()}


@pytest.fixture(scope="module")
def detector(exported_run: Path) -> Detector:
    return Detector.load(exported_run / "model.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photo: bytes) -> Path:
    """Files of Label Studio, and others outside that must not be read."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.jpg").write_bytes(photo)
    root = outside / "media"
    (root / "upload" / "1").mkdir(parents=True)
    (root / "upload" / "1" / "a photo.jpg").write_bytes(photo)
    (root / "upload" / "1" / "linked.jpg").symlink_to(root / "upload" / "1" / "a photo.jpg")
    (root / "out.jpg").symlink_to(outside / "secret.jpg")
    (root / "out").symlink_to(outside)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    (root / "text.txt").write_text("a secret")
    with (root / "large.jpg").open("wb") as file:
        file.truncate(40 * 1024**2)
    return root


@pytest.fixture(scope="module")
def backend(exported_run: Path, folder: Path) -> Iterator[Served]:
    """A service with a token, as one has it that Label Studio asks from another machine."""
    words = (f"run={exported_run / 'model.onnx'}", f"token={TOKEN}", f"label_studio={folder}", "timeout=20")
    with served(*words) as running:
        yield running


def config(*labels: str, tags: str = "", controls: str = "") -> str:
    inner = "".join(labels)
    return (
        f'<View><Image name="img" value="$picture"/>{tags}'
        f'<RectangleLabels name="kind" toName="img" {controls}>{inner}</RectangleLabels></View>'
    )


def all_labels(detector: Detector) -> list[str]:
    return [f'<Label value="{name}"/>' for name in detector.classes]


def data_uri(photo: bytes) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(photo).decode()


def predict(backend: Served, label_config: str, *pictures: object, key: str = "picture") -> Answer:
    tree = {
        "tasks": [{"id": 7 + i, "data": {key: picture}} for i, picture in enumerate(pictures)],
        "model_version": "",
        "project": "1.1700000000",
        "label_config": label_config,
        "params": {"login": None, "password": None, "context": None},
    }
    return backend.ask("/predict", json.dumps(tree).encode(), headers=BASIC)


def boxes(result: Sequence[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Edges in pixels."""
    edges = []
    for region in result:
        value, width, height = region["value"], region["original_width"], region["original_height"]
        x, y = value["x"] * width / 100, value["y"] * height / 100
        edges.append([x, y, x + value["width"] * width / 100, y + value["height"] * height / 100])
    return np.array(edges)


def test_health_and_setup(backend: Served, detector: Detector) -> None:
    assert backend.ask("/health", headers=BASIC).json["status"] == "UP"
    tree = {
        "project": "1.1700000000",
        "schema": config(*all_labels(detector)),
        "hostname": "http://localhost:8080",
        "access_token": "a-secret-of-theirs",
        "extra_params": None,
    }
    answer = backend.ask("/setup", json.dumps(tree).encode(), headers=BASIC)
    (model,) = backend.ask("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).json
    assert answer.json == {"model_version": model["digest"]}
    assert "a-secret-of-theirs" not in "".join(backend.lines)
    answer = backend.ask(
        f"/v1/models/{model['name']}/label-studio/setup", json.dumps(tree).encode(), headers=BASIC
    )
    assert answer.json == {"model_version": model["digest"]}


def test_the_password_is_the_token_for_these_routes_only(backend: Served) -> None:
    wrong = {"Authorization": "Basic " + base64.b64encode(b"label studio:another").decode()}
    for headers in ({}, wrong, {"Authorization": "Basic ?"}, {"Authorization": "Basic " + TOKEN}):
        assert backend.ask("/health", headers=headers).status == 401
    assert backend.ask("/v1/models", headers=BASIC).status == 401
    assert backend.ask("/v2/models/model/ready", headers=BASIC).status == 401


def test_it_finds_what_predict_finds(backend: Served, detector: Detector, photo: bytes) -> None:
    text = config(*all_labels(detector), controls='model_score_threshold="0.02"')
    answer = predict(backend, text, data_uri(photo))
    (prediction,) = answer.json["results"]
    expected = detector.predict(photo, score=0.02)
    result = prediction["result"]
    assert len(result) == len(expected) > 0
    assert {(region["from_name"], region["to_name"], region["type"]) for region in result} == {
        ("kind", "img", "rectanglelabels")
    }
    assert [region["value"]["rectanglelabels"] for region in result] == [[name] for name in expected.names]
    assert np.abs(boxes(result) - expected.boxes).max() < 0.01
    assert len({region["id"] for region in result}) == len(result)
    assert prediction["model_version"] == answer.json["model_version"] == detector_digest(backend)
    assert prediction["score"] == pytest.approx(expected.scores.mean(), abs=1e-4)


def detector_digest(backend: Served) -> str:
    (model,) = backend.ask("/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).json
    digest: str = model["digest"]
    return digest


def test_a_turned_photo_is_upright(backend: Served, detector: Detector, tmp_path: Path) -> None:
    pixels = np.kron(np.random.default_rng(0).integers(0, 256, (4, 6, 3)), np.ones((40, 40, 1)))
    exif = Pillow.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Pillow.fromarray(pixels.astype(np.uint8)).save(tmp_path / "turned.jpg", exif=exif)
    content = (tmp_path / "turned.jpg").read_bytes()
    text = config(*all_labels(detector), controls='model_score_threshold="0.02"')
    (prediction,) = predict(backend, text, data_uri(content)).json["results"]
    (first, *_) = prediction["result"]
    assert (first["original_width"], first["original_height"]) == (160, 240)
    assert np.abs(boxes(prediction["result"]) - detector.predict(content, score=0.02).boxes).max() < 0.01


def test_labels_have_names_of_their_own(backend: Served, detector: Detector, photo: bytes) -> None:
    first, second, third = detector.classes[:3]
    other = (
        '<RectangleLabels name="rough" toName="img" model_score_threshold="0.02">'
        f'<Label value="Anything" predicted_values="{first}, {second}"/></RectangleLabels>'
    )
    labels = (f'<Label value="{first.upper()}"/>', f'<Label value="{third}" alias="its-alias"/>')
    text = config(*labels, tags=other, controls='model_score_threshold="0.02"')
    (prediction,) = predict(backend, text, data_uri(photo)).json["results"]
    names = detector.predict(photo, score=0.02).names
    found = [(region["from_name"], region["value"]["rectanglelabels"][0]) for region in prediction["result"]]
    assert set(names) >= {first, second, third}
    assert found.count(("rough", "Anything")) == names.count(first) + names.count(second)
    assert found.count(("kind", first.upper())) == names.count(first)
    assert found.count(("kind", "its-alias")) == names.count(third)
    assert len(found) == 2 * names.count(first) + names.count(second) + names.count(third)


def test_files_of_label_studio(backend: Served, detector: Detector, photo: bytes) -> None:
    text = config(*all_labels(detector), controls='model_score_threshold="0.02"')
    names = ("/data/upload/1/a%20photo.jpg", "/data/local-files/?d=upload/1/linked.jpg", data_uri(photo))
    answer = predict(backend, text, *names * 10)  # more than one group
    assert answer.status == 200, answer.body
    results = [prediction["result"] for prediction in answer.json["results"]]
    assert len(results) == 30
    assert all(result == results[0] for result in results)


OUTSIDE = [
    "/data/local-files/?d=../secret.jpg",
    "/data/local-files/?d=/../secret.jpg",
    "/data/local-files/?d=%2e%2e%2fsecret.jpg",
    "/data/local-files/?d=out.jpg",
    "/data/local-files/?d=out/secret.jpg",
    "/data/local-files/?d=upload/../../secret.jpg",
    "/data/local-files/?d=/etc/passwd",
    "/data/local-files/?d=loop",
    "/data/local-files/?d=pipe",
    "/data/local-files/?d=upload",
    "/data/local-files/?d=large.jpg",
    "/data/local-files/?d=none.jpg",
    "/data/local-files/?d=a%00b",
    "/data/local-files/?d=" + "a/" * 3000,
    "/data/local-files/?d=" + "a" * 3000,
    "/data/local-files/",
    "/data/upload/../../secret.jpg",
    "/data/upload/%2e%2e/%2e%2e/secret.jpg",
    "http://127.0.0.1:1/photo.jpg",
    "//127.0.0.1/data/upload/1/a photo.jpg",
    "file:///etc/passwd",
    "s3://bucket/photo.jpg",
    "http://[",
    "upload/1/a photo.jpg",
    "",
]


@pytest.mark.parametrize("value", OUTSIDE, ids=lambda value: value[:40])
def test_nothing_else_is_read(value: str, backend: Served, detector: Detector, folder: Path) -> None:
    answer = predict(backend, config(*all_labels(detector)), value)
    assert answer.status == 422, answer.body
    assert answer.json["advice"]
    assert str(folder.parent).encode() not in answer.body


def test_no_file_is_read_without_the_folder(service: Served, detector: Detector) -> None:
    answer = predict(service, config(*all_labels(detector)), "/data/upload/1/a.jpg")
    assert answer.status == 422
    assert "label_studio=" in answer.json["advice"]


BOMB = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
READER = '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
BAD_CONFIGS = {
    "no XML": "<View>",
    "empty": "",
    "entities": BOMB + config('<Label value="&b;"/>'),
    "external entity": READER + config('<Label value="&a;"/>'),
    "lone surrogate": "\ud800",
    "no labels": "<View/>",
    "no image": '<View><RectangleLabels name="a" toName="b"/></View>',
    "list of images": '<View><Image name="b" valueList="$c"/><RectangleLabels name="a" toName="b"/></View>',
    "other classes": config('<Label value="no class of this name"/>'),
    "threshold": config(controls='model_score_threshold="much"'),
    "threshold is NaN": config(controls='model_score_threshold="nan"'),
    "deep": "<a>" * 30_000 + "</a>" * 30_000,
    "large": "<View>" + " " * 300_000 + "</View>",
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_label_configs(name: str, backend: Served, photo: bytes) -> None:
    answer = predict(backend, BAD_CONFIGS[name], data_uri(photo))
    assert answer.status == 400, answer.body
    assert answer.json["error"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"tasks": None}, 400),
        ({"tasks": [1]}, 400),
        ({"tasks": [{}]}, 400),
        ({"tasks": [{"data": {}}]}, 400),
        ({"tasks": [{"data": {"picture": 3}}]}, 400),
        ({"tasks": [{"data": {"picture": "data:image/png,abc"}}]}, 400),
        ({"tasks": [{"data": {"picture": "data:image/png;base64,?"}}]}, 400),
        ({"tasks": [{"data": {"picture": "data:image/png;base64,eA=="}}]}, 415),
        ({"label_config": None}, 400),
        ({"tasks": []}, 200),
    ],
)
def test_bad_tasks(change: dict[str, object], status: int, backend: Served, detector: Detector) -> None:
    tree = {"label_config": config(*all_labels(detector)), **change}
    answer = backend.ask("/predict", json.dumps(tree).encode(), headers=BASIC)
    assert answer.status == status, answer.body
