"""The Open Inference Protocol from outside, with requests as the specification writes them."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxcrew import Detector
from boxcrew.core.version import VERSION
from boxcrew.data.images.reading import decode_image
from tests.helpers.served import Answer, Served

PATH = "/v2/models/model"
SCORE = 0.02
TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}

Tree = dict[str, Any]


@pytest.fixture(scope="module")
def detector(exported_run: Path) -> Detector:
    return Detector.load(exported_run / "model.onnx")


def encoded(*photos: bytes) -> Tree:
    data = [base64.b64encode(photo).decode() for photo in photos]
    return {"name": "photos", "datatype": "BYTES", "shape": [len(photos)], "data": data}


def request(*inputs: Tree, **others: Any) -> Tree:
    return {"inputs": list(inputs), "parameters": {"score": SCORE}, **others}


def ask(service: Served, tree: object, binary: bytes | None = None, *, path: str = PATH) -> Answer:
    text = json.dumps(tree).encode()
    headers = {"Content-Type": "application/json"}
    if binary is not None:
        headers |= {"Inference-Header-Content-Length": str(len(text))}
    return service.ask(f"{path}/infer", text + (binary or b""), headers=headers)


def tensors(answer: Answer) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs, in JSON or behind it."""
    assert answer.status == 200, answer.body
    length = int(answer.headers.get("inference-header-content-length", len(answer.body)))
    rest = answer.body[length:]
    arrays = {}
    for output in json.loads(answer.body[:length])["outputs"]:
        kind = TYPES[output["datatype"]]
        if "data" in output:
            values = np.array(output["data"], kind)
        else:
            size = output["parameters"]["binary_data_size"]
            values, rest = np.frombuffer(rest[:size], kind), rest[size:]
        arrays[output["name"]] = values.reshape(output["shape"])
    assert not rest
    return arrays


def test_metadata(service: Served) -> None:
    assert service.ask("/v2").json == {
        "name": "boxcrew",
        "version": VERSION,
        "extensions": ["binary_tensor_data"],
    }
    (model,) = service.ask("/v1/models").json
    metadata = service.ask(PATH).json
    assert set(metadata) == {"name", "versions", "platform", "inputs", "outputs"}
    assert metadata["name"] == "model"
    assert metadata["versions"] == [model["version"]]
    assert metadata["inputs"][0] == {"name": "photos", "datatype": "BYTES", "shape": [-1]}
    assert service.ask(f"{PATH}/versions/{model['version']}").json == metadata
    assert service.ask(f"{PATH}/ready").json == {"name": "model", "ready": True}
    assert service.ask(f"{PATH}/versions/{model['version']}/ready").status == 200
    assert service.ask(f"{PATH}/versions/1").status == 404
    assert service.ask("/v2/models/other/ready").status == 404


def test_files_in_json(service: Served, photo: bytes, detector: Detector) -> None:
    answer = ask(service, request(encoded(photo), id="seven"))
    assert answer.json["id"] == "seven"
    assert answer.json["model_name"] == "model"
    assert answer.json["model_version"] in service.ask(PATH).json["versions"]
    expected, found = detector.predict(photo, score=SCORE), tensors(answer)
    assert len(expected) > 0
    assert list(found) == ["boxes", "scores", "labels", "counts"]
    assert found["counts"].tolist() == [len(expected)]
    assert found["labels"].tolist() == expected.labels.tolist()
    assert np.abs(found["boxes"] - expected.boxes).max() < 0.01
    assert np.abs(found["scores"] - expected.scores).max() < 1e-4


def test_files_as_bytes(service: Served, photo: bytes) -> None:
    binary = 2 * (struct.pack("<I", len(photo)) + photo)
    tensor = {"name": "photos", "datatype": "BYTES", "shape": [2]}
    tree = request({**tensor, "parameters": {"binary_data_size": len(binary)}})
    found = tensors(ask(service, tree, binary))
    (once,) = tensors(ask(service, request(encoded(photo))))["counts"].tolist()
    assert found["counts"].tolist() == [once, once]
    assert np.array_equal(found["boxes"][:once], found["boxes"][once:])


@pytest.mark.parametrize("form", ["flat", "nested", "bytes"])
def test_pixels(form: str, service: Served, detector: Detector, photo: bytes) -> None:
    pixels = decode_image(photo)[:48, :64].copy()
    tensor: Tree = {"name": "pixels", "datatype": "UINT8", "shape": [2, 48, 64, 3]}
    both = np.stack([pixels, pixels[::-1]])
    if form == "bytes":
        tensor["parameters"] = {"binary_data_size": both.size}
        answer = ask(service, request(tensor), both.tobytes())
    else:
        tensor["data"] = (both.ravel() if form == "flat" else both).tolist()
        answer = ask(service, request(tensor))
    found = tensors(answer)
    expected = [detector.predict(image, score=SCORE) for image in both]
    assert found["counts"].tolist() == [len(each) for each in expected]
    assert np.abs(found["boxes"] - np.concatenate([each.boxes for each in expected])).max() < 0.01


def test_outputs_that_are_asked_for(service: Served, photo: bytes) -> None:
    wanted = [{"name": "counts"}, {"name": "boxes", "parameters": {"binary_data": True}}]
    found = tensors(ask(service, request(encoded(photo), outputs=wanted)))
    everything = tensors(
        ask(service, request(encoded(photo), parameters={"score": SCORE, "binary_data_output": True}))
    )
    assert list(found) == ["counts", "boxes"]
    assert np.array_equal(found["boxes"], everything["boxes"])
    assert everything["scores"].dtype == np.float32


def test_nothing_found_has_shapes_too(service: Served, photo: bytes) -> None:
    for binary in (False, True):
        parameters = {"score": 1, "binary_data_output": binary}
        found = tensors(ask(service, request(encoded(photo), parameters=parameters)))
        assert found["boxes"].shape == (0, 4)
        assert found["counts"].tolist() == [0]


def pixel_tensor(shape: Sequence[object], data: object) -> Tree:
    return request({"name": "pixels", "datatype": "UINT8", "shape": shape, "data": data})


def photo_tensor(**changes: object) -> Tree:
    return request({**encoded(b"x"), **changes})


BAD: Mapping[str, tuple[object, int]] = {
    "no object": ([1], 400),
    "no inputs": ({}, 400),
    "inputs are no list": ({"inputs": 3}, 400),
    "inputs are no objects": ({"inputs": [3]}, 400),
    "empty inputs": ({"inputs": []}, 400),
    "both inputs": (request(encoded(b"x"), {"name": "pixels"}), 400),
    "unknown input": (photo_tensor(name="picture"), 400),
    "name is no text": (photo_tensor(name=["photos"]), 400),
    "wrong datatype": (photo_tensor(datatype="FP32"), 400),
    "no datatype": (photo_tensor(datatype=None), 400),
    "no shape": (photo_tensor(shape=None), 400),
    "too many axes": (photo_tensor(shape=[1, 1]), 400),
    "too long": (photo_tensor(shape=[2]), 400),
    "nothing": (photo_tensor(shape=[0], data=[]), 400),
    "negative side": (photo_tensor(shape=[-1]), 400),
    "side is a boolean": (photo_tensor(shape=[True]), 400),
    "side is a list": (photo_tensor(shape=[[1]]), 400),
    "side is an object": (pixel_tensor([1, {}, 1, 3], [1, 2, 3]), 400),
    "side is a fraction": (photo_tensor(shape=[1.0]), 400),
    "too many photos": (photo_tensor(shape=[17], data=["eA=="] * 17), 413),
    "no base64": (photo_tensor(data=["é"]), 400),
    "cut base64": (photo_tensor(data=["eA="]), 400),
    "data is a number": (photo_tensor(data=[7]), 400),
    "data is a text": (photo_tensor(data="eA=="), 400),
    "no data": (request({"name": "photos", "datatype": "BYTES", "shape": [1]}), 400),
    "not a photo": (photo_tensor(), 415),
    "empty photo": (photo_tensor(data=[""]), 400),
    "huge pixels": (pixel_tensor([1, 2**30, 2**30, 3], [1]), 400),
    "beyond 64 bits": (pixel_tensor([1, 10**40, 1, 3], [1]), 400),
    "a digit of 4000": (pixel_tensor([1, 10**4000, 1, 3], [1]), 400),
    "pixels too few": (pixel_tensor([1, 2, 2, 3], [1] * 11), 400),
    "pixels too many": (pixel_tensor([1, 2, 2, 3], [1] * 13), 400),
    "pixels are ragged": (pixel_tensor([1, 2, 1, 3], [[[[1, 2, 3]], [[1, 2]]]]), 400),
    "pixels are deeper": (pixel_tensor([1, 1, 1, 3], [[[[[1], [2], [3]]]]]), 400),
    "pixels beyond 255": (pixel_tensor([1, 1, 1, 3], [0, 0, 256]), 400),
    "pixels below 0": (pixel_tensor([1, 1, 1, 3], [0, 0, -1]), 400),
    "pixels are fractions": (pixel_tensor([1, 1, 1, 3], [0, 0.5, 1]), 400),
    "pixels are booleans": (pixel_tensor([1, 1, 1, 3], [True, False, True]), 400),
    "pixels of 4 channels": (pixel_tensor([1, 1, 1, 4], [1, 2, 3, 4]), 400),
    "no pixels": (pixel_tensor([1, 1, 1, 3], []), 400),
    "score is NaN": (request(encoded(b"x"), parameters={"score": float("nan")}), 400),
    "score is infinite": (request(encoded(b"x"), parameters={"score": float("inf")}), 400),
    "score is 2": (request(encoded(b"x"), parameters={"score": 2}), 400),
    "score is a text": (request(encoded(b"x"), parameters={"score": "0.5"}), 400),
    "score is true": (request(encoded(b"x"), parameters={"score": True}), 400),
    "unknown parameter": (request(encoded(b"x"), parameters={"scoer": 0.5}), 400),
    "parameters are no object": (request(encoded(b"x"), parameters=[]), 400),
    "unknown output": (request(encoded(b"x"), outputs=[{"name": "masks"}]), 400),
    "an output twice": (request(encoded(b"x"), outputs=[{"name": "boxes"}, {"name": "boxes"}]), 400),
    "output without a name": (request(encoded(b"x"), outputs=[{}]), 400),
    "classification": (
        request(encoded(b"x"), outputs=[{"name": "boxes", "parameters": {"classification": 3}}]),
        400,
    ),
    "shared memory": (photo_tensor(parameters={"shared_memory_region": "mine"}), 400),
    "binary is a number": (request(encoded(b"x"), parameters={"binary_data_output": 1}), 400),
    "id is a number": (request(encoded(b"x"), id=7), 400),
    "id is too long": (request(encoded(b"x"), id="7" * 300), 400),
    "size without bytes": (photo_tensor(parameters={"binary_data_size": 5}), 400),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(name: str, service: Served) -> None:
    tree, status = BAD[name]
    answer = ask(service, tree)
    assert answer.status == status, answer.body
    assert isinstance(answer.json["error"], str)
    assert answer.json["error"]


def raw(body: bytes, **headers: str) -> Callable[[Served], Answer]:
    return lambda service: service.ask(f"{PATH}/infer", body, headers=headers)


def with_bytes(shape: list[int], binary: bytes, **parameters: object) -> Callable[[Served], Answer]:
    tensor: Tree = {"name": "photos", "datatype": "BYTES", "shape": shape}
    tree = request({**tensor, "parameters": {"binary_data_size": len(binary), **parameters}})
    return lambda service: ask(service, tree, binary)


BAD_BYTES: Mapping[str, tuple[Callable[[Served], Answer], int]] = {
    "empty": (raw(b""), 400),
    "no JSON": (raw(b"{"), 400),
    "not UTF-8": (raw(b'{"id": "\xff"}'), 400),
    "deep": (raw(b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), 400),
    "many values": (raw(b"[" + b"[]," * 1_000_000 + b"1]"), 413),
    "a long number": (raw(b'{"inputs":[{"shape":[' + b"9" * 100_000 + b"]}]}"), 400),
    "compressed": (raw(b"{}", **{"Content-Encoding": "gzip"}), 415),
    "length is a text": (raw(b"{}", **{"Inference-Header-Content-Length": "two"}), 400),
    "length is negative": (raw(b"{}", **{"Inference-Header-Content-Length": "-2"}), 400),
    "length beyond the end": (raw(b"{}", **{"Inference-Header-Content-Length": "3"}), 400),
    "one photo too few": (with_bytes([2], struct.pack("<I", 1) + b"x"), 400),
    "one photo too many": (with_bytes([1], 2 * (struct.pack("<I", 1) + b"x")), 400),
    "longer than the rest": (with_bytes([1], struct.pack("<I", 2**32 - 1) + b"x"), 400),
    "cut length": (with_bytes([1], b"\1\0"), 400),
    "wrong size": (with_bytes([1], struct.pack("<I", 1) + b"x", binary_data_size=4), 400),
    "size is a text": (with_bytes([1], struct.pack("<I", 1) + b"x", binary_data_size="5"), 400),
}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_bad_bytes(name: str, service: Served) -> None:
    send, status = BAD_BYTES[name]
    answer = send(service)
    assert answer.status == status, answer.body
    assert answer.json["error"]


def test_the_deadline_holds(service: Served, photo: bytes) -> None:
    text = json.dumps(request(encoded(*[photo] * 16))).encode()
    answer = service.ask(f"{PATH}/infer", text, headers={"X-Timeout": "0.01"})
    assert answer.status == 504


TRITON = """
import sys
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("model")
assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
content = open(sys.argv[2], "rb").read()
photos = triton.InferInput("photos", [2], "BYTES")
photos.set_data_from_numpy(np.array([content, content], dtype=np.object_))
result = client.infer("model", [photos], parameters={"score": 0.02})
counts, boxes = result.as_numpy("counts"), result.as_numpy("boxes")
assert counts[0] == counts[1] > 0 and boxes.shape == (counts.sum(), 4)
pixels = triton.InferInput("pixels", [1, 40, 30, 3], "UINT8")
pixels.set_data_from_numpy(np.zeros((1, 40, 30, 3), np.uint8), binary_data=False)
wanted = [triton.InferRequestedOutput("scores", binary_data=False)]
result = client.infer("model", [pixels], outputs=wanted, parameters={"score": 1.0})
assert result.as_numpy("scores").shape == (0,) and result.as_numpy("boxes") is None
try:
    client.infer("other", [photos])
except triton.InferenceServerException as error:
    assert "no such model" in error.message()
else:
    raise SystemExit("another model answered")
"""


def test_the_client_of_triton(service: Served, photo: bytes, tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    (tmp_path / "photo.jpg").write_bytes(photo)
    words = [sys.executable, "-c", TRITON, f"127.0.0.1:{service.port}", str(tmp_path / "photo.jpg")]
    subprocess.run(words, check=True, timeout=30)
