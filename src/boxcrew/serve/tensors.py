"""Reads and writes photos and detections as tensors of the Open Inference Protocol: numbers in JSON, or bytes
after it.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from boxcrew.core.types import Detections
from boxcrew.runtime.predictor import Array
from boxcrew.serve.json_body import (
    Tree,
    bad_request,
    child,
    objects,
    optional_child,
    optional_object,
    parse_object,
    require_known,
)
from boxcrew.serve.photo import NamedPhoto, Photo, PixelPhoto
from boxcrew.serve.refusals import RefusedError
from boxcrew.serve.uploads import MAX_PHOTOS

INPUTS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "photos": ("BYTES", (-1,)),
    "pixels": ("UINT8", (-1, -1, -1, 3)),
}
"""Datatype and shape of what a model takes, of which a request has one: files, or RGB pixels of N photos of
the same size, (N, height, width, 3).
"""
OUTPUTS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "boxes": ("FP32", (-1, 4)),
    "scores": ("FP32", (-1,)),
    "labels": ("INT64", (-1,)),
    "counts": ("INT32", (-1,)),
}
"""Datatype and shape of what a model finds: the objects of all photos, one photo after the other, and how
many of them each photo has.
"""
USUAL_SCORE: Final = 0.25

_PARAMETERS = ("score", "binary_data_output")
_MOST_SIDE = 2**31
_MOST_ID = 256
_DIGITS = {"boxes": 3, "scores": 6, "labels": 0, "counts": 0}  # that mean something


@dataclass(frozen=True, kw_only=True, eq=False)
class InferRequest:
    """A request of the protocol."""

    id: str | None
    photos: Sequence[NamedPhoto]
    score: float
    outputs: Sequence[tuple[str, bool]]  # names, and whether their numbers are sent as bytes

    @classmethod
    def of(cls, body: bytes, header_length: int | None) -> Self:
        """Read a request, whose first bytes are JSON, or all; `RefusedError` if it breaks the protocol."""
        length = len(body) if header_length is None else header_length
        if length > len(body):
            raise bad_request("Inference-Header-Content-Length: is more than the body has")
        tree = parse_object(body[:length])
        parameters = optional_object(tree, "parameters")
        for name in parameters:
            require_known(name, _PARAMETERS, what="parameters")
        inputs = objects(child(tree, "inputs", list), where="inputs")
        if len(inputs) != 1:
            raise bad_request("inputs: has to be one", advice="send either photos or pixels")
        binary = optional_child(parameters, "binary_data_output", default=False, where="parameters.")
        return cls(
            id=_id(tree),
            photos=_photos(inputs[0], memoryview(body)[length:]),
            score=_score(parameters),
            outputs=_wanted(tree, is_binary=binary),
        )


def _id(tree: Tree) -> str | None:
    if "id" not in tree:
        return None
    request_id = child(tree, "id", str)
    if len(request_id) > _MOST_ID:
        raise bad_request(f"id: has more than {_MOST_ID} letters")
    return request_id


def _score(parameters: Tree) -> float:
    score = parameters.get("score", USUAL_SCORE)
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise bad_request("parameters.score: is not a number from 0 to 1")
    return float(score)


def _wanted(tree: Tree, *, is_binary: bool) -> list[tuple[str, bool]]:
    """Return the outputs that a request asks for: all, if it names none."""
    wanted: dict[str, bool] = {}
    for output in objects(optional_child(tree, "outputs", default=[]), where="outputs"):
        name = child(output, "name", str, where="outputs.")
        require_known(name, tuple(OUTPUTS), what="outputs")
        if name in wanted:
            raise bad_request(f"outputs: {name} is asked for twice")
        parameters = optional_object(output, "parameters", where=f"{name}.")
        _require_offered(parameters)
        wanted[name] = optional_child(
            parameters, "binary_data", default=is_binary, where=f"{name}.parameters."
        )
    return list((wanted or dict.fromkeys(OUTPUTS, is_binary)).items())


def _require_offered(parameters: Tree) -> None:
    if "classification" in parameters or any(name.startswith("shared_memory") for name in parameters):
        raise bad_request("classification and shared memory are not offered", advice="ask for the tensors")


def _photos(tensor: Tree, binary: memoryview) -> list[NamedPhoto]:
    """Return the photos of an input, whose content is in JSON or follows it."""
    name = child(tensor, "name", str, where="inputs.")
    require_known(name, tuple(INPUTS), what="inputs")
    datatype, dims = INPUTS[name]
    if child(tensor, "datatype", str, where=f"{name}.") != datatype:
        raise bad_request(f"{name}.datatype: has to be {datatype}")
    shape = _shape(tensor, name, dims)
    parameters = optional_object(tensor, "parameters", where=f"{name}.")
    _require_offered(parameters)
    size = parameters.get("binary_data_size")
    if size is None:
        if binary:
            raise bad_request(f"{name}: bytes follow, but binary_data_size is missing")
        data = child(tensor, "data", list, where=f"{name}.")
        return _photos_of_json(data, shape[0]) if name == "photos" else _pixels_of_json(data, shape)
    if "data" in tensor:
        raise bad_request(f"{name}: has data in JSON and as bytes", advice="send one of them")
    if isinstance(size, bool) or size != len(binary):
        message = f"{name}.parameters.binary_data_size: {len(binary)} bytes follow the JSON"
        raise bad_request(message, advice="Inference-Header-Content-Length says where it ends")
    return _photos_of_bytes(binary, shape[0]) if name == "photos" else _pixels_of_bytes(binary, shape)


def _shape(tensor: Tree, name: str, dims: Sequence[int]) -> list[int]:
    shape = child(tensor, "shape", list, where=f"{name}.")
    fits = len(shape) == len(dims) and all(
        type(side) is int and 0 < side < _MOST_SIDE and dim in {-1, side}
        for dim, side in zip(dims, shape, strict=True)
    )
    if not fits:
        raise bad_request(f"{name}.shape: has to be like {list(dims)}", advice="-1 is any number from 1 on")
    if shape[0] > MAX_PHOTOS:
        message = f"{name}: more than {MAX_PHOTOS} photos in one request"
        raise RefusedError(413, "too_large", message, advice="send them in several requests")
    return shape


def _name(number: int) -> str:
    return f"photos[{number}]"


def _photos_of_json(data: Sequence[object], num: int) -> list[NamedPhoto]:
    if len(data) != num:
        raise bad_request(f"photos.data: has {len(data)} values, its shape {num}")
    return [Photo(name=_name(i), data=_decoded(value, i)) for i, value in enumerate(data)]


def _decoded(value: object, number: int) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    advice = "write the file in base64, or send it as bytes behind the JSON"
    raise bad_request(f"{_name(number)}: is not base64", advice=advice)


def _photos_of_bytes(binary: memoryview, num: int) -> list[NamedPhoto]:
    """Return photos that are written one after the other, each behind its length in four bytes."""
    photos: list[NamedPhoto] = []
    start = 0
    while start + 4 <= len(binary) and len(photos) < num:
        (length,) = struct.unpack_from("<I", binary, start)
        start += 4
        if start + length > len(binary):
            raise bad_request(f"{_name(len(photos))}: is longer than what follows the JSON")
        photos.append(Photo(name=_name(len(photos)), data=bytes(binary[start : start + length])))
        start += length
    if len(photos) != num or start != len(binary):
        raise bad_request(f"photos: the bytes are not {num} photos, each behind its length in 4 bytes")
    return photos


def _pixels_of_json(data: Sequence[object], shape: Sequence[int]) -> list[NamedPhoto]:
    """Return photos whose numbers stand in one list, or in lists in lists as the shape says."""
    wrong = bad_request("pixels.data: is not whole numbers from 0 to 255, as many as the shape says")
    values = data
    for side in shape[1:] if data and isinstance(data[0], list) else ():
        if not all(isinstance(value, list) and len(value) == side for value in values):
            raise wrong
        values = list(itertools.chain.from_iterable(values))  # type: ignore[arg-type]
    if set(map(type, values)) != {int}:
        raise wrong
    try:
        return _pixels_of_bytes(memoryview(bytes(values)), shape)  # type: ignore[arg-type]
    except ValueError:
        raise wrong from None


def _pixels_of_bytes(binary: memoryview, shape: Sequence[int]) -> list[NamedPhoto]:
    if len(binary) != math.prod(shape):
        raise bad_request(f"pixels: has {len(binary)} values, its shape another number")
    pixels = np.frombuffer(binary, np.uint8).reshape(shape)
    return [PixelPhoto(name=f"pixels[{i}]", pixels=image) for i, image in enumerate(pixels)]


def output_tensors(detections: Sequence[Detections], score: float) -> dict[str, Array]:
    """Return the objects with at least a score, in the order of the photos, best first in each."""
    kept = [each.above(score) for each in detections]
    return {
        "boxes": np.concatenate([each.boxes for each in kept]),
        "scores": np.concatenate([each.scores for each in kept]),
        "labels": np.concatenate([each.labels for each in kept]),
        "counts": np.array([len(each) for each in kept], np.int32),
    }


def encode_outputs(
    head: Tree, tensors: dict[str, Array], outputs: Sequence[tuple[str, bool]]
) -> tuple[bytes, int | None]:
    """Return the body of an answer, and the length of its JSON if bytes follow."""
    entries, buffers = [], []
    for name, is_binary in outputs:
        values = tensors[name]
        entry: dict[str, object] = {"name": name, "datatype": OUTPUTS[name][0], "shape": list(values.shape)}
        if is_binary:
            buffers.append(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())
            entry["parameters"] = {"binary_data_size": len(buffers[-1])}
        else:
            digits = _DIGITS[name]
            numbers = values.ravel().tolist()
            entry["data"] = [round(number, digits) for number in numbers] if digits else numbers
        entries.append(entry)
    tree = {**head, "outputs": entries}
    text = json.dumps(tree, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return text + b"".join(buffers), len(text) if buffers else None
