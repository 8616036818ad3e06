"""The description of the service's own routes in OpenAPI 3.1. It is made when it is first asked for."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from boxcrew.core.version import VERSION
from boxcrew.serve.photo import MAX_PIXELS
from boxcrew.serve.uploads import MAX_BYTES, MAX_PHOTOS

Tree = dict[str, Any]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Identity(_Answer):
    """The name and the digests of the weights that have answered."""

    name: str
    digest: str
    """Digest of the weights."""
    version: str
    """The beginning of the digest of the file."""


class DetectedObject(_Answer):
    """One object that was found."""

    box: tuple[float, float, float, float]
    """Left, top, right and bottom in pixels of the upright photo."""
    score: float = Field(ge=0, le=1)
    label: int = Field(ge=0)
    """Number of the class, from 0 on."""
    name: str
    """Name of the class."""


class Milliseconds(_Answer):
    """The time of each stage of a photo."""

    decode: float
    queue: float
    network: float
    post: float


class PhotoResult(_Answer):
    """The objects that were found in one photo."""

    name: str
    width: int
    height: int
    detections: list[DetectedObject]
    """Best first."""
    milliseconds: Milliseconds


class DetectAnswer(_Answer):
    """The objects that were found in the photos of a request, in their order."""

    request: str
    model: Identity
    results: list[PhotoResult]


class CocoResult(_Answer):
    """One object in the form of COCO's results."""

    image_id: int
    """Number of the photo in the request, from 1 on."""
    file_name: str
    category_id: int
    """Number of the class, from 1 on."""
    bbox: tuple[float, float, float, float]
    """Left, top, width and height."""
    score: float


class ModelAnswer(_Answer):
    """A model that is served, with all there is to know about it."""

    name: str
    digest: str
    version: str
    network: str
    classes: list[str]
    colors: list[str]
    """Color of each class, such as #e69f00."""
    size: int
    """Side of the network's input in pixels."""
    AP: float | None
    AP50: float | None
    score_threshold: float
    """Detections below this score are never found."""
    suggested_threshold: float
    """Score from which on detections are worth showing."""
    engine: str
    precision: str
    milliseconds: dict[str, float]
    """Mean of each stage of the latest photos."""
    loaded: str
    samples: int
    """Number of photos to try the model with."""


class ErrorAnswer(_Answer):
    """The reason why a request was refused, and what to do."""

    error: str
    advice: str
    request: str


_MODELS = (DetectAnswer, CocoResult, ModelAnswer, ErrorAnswer)
_ERRORS = {
    400: "A setting, a header or the form is wrong",
    401: "The token is missing or wrong",
    404: "There is no such model, version or sample",
    405: "The route does not take this method",
    408: "The request did not arrive in time",
    409: "The new file of the model cannot be used",
    413: "Too many bytes, pixels or photos",
    415: "Not a photo of a known kind, or in an encoding",
    422: "A photo that cannot be decoded",
    429: "Too many photos wait already: ask again after Retry-After seconds",
    503: "The service begins or ends: ask again after Retry-After seconds",
    504: "There was no time to answer",
}
_ALWAYS = (400, 401, 405)


def openapi() -> Tree:
    """Return the description of the routes."""
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "boxcrew", "version": VERSION, "description": "A detector as a service."},
        "paths": _paths(),
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> Tree:
    model, number = (
        _in_path("name", {"type": "string"}),
        _in_path("number", {"type": "integer", "minimum": 0}),
    )
    return {
        "/v1/detect": {"post": _detect()},
        "/v1/models": {"get": _get("The models that are served", _json(_list("ModelAnswer")))},
        "/v1/models/{name}": {"get": _get("One model", _json(_ref("ModelAnswer")), [model], codes=(404,))},
        "/v1/models/{name}/samples/{number}": {
            "get": _get("A photo to try a model with", _binary("image/jpeg"), [model, number], codes=(404,))
        },
        "/v1/models/{name}/reload": {
            "post": {
                **_get(
                    "Serve the file of a model as it is now",
                    _json(_ref("ModelAnswer")),
                    [model],
                    codes=(404, 409, 429, 503),
                ),
                "description": "The new file is tried first. If it does not answer, the old one is kept.",
            }
        },
        "/v2/health/live": {"get": _health("Whether the process answers", "live")},
        "/v2/health/ready": {
            "get": _health("Whether photos are answered: 503 if not", "ready", codes=(200, 503))
        },
        "/metrics": {"get": _get("What was counted, for Prometheus", _binary("text/plain"))},
    }


def _detect() -> Tree:
    parameters = [
        _in_query(
            "model", "Name of the model, or NAME@DIGEST; not needed if there is one.", {"type": "string"}
        ),
        _in_query("score", "Score of a detection, at least.", _number(0, 1, usual=0.25)),
        _in_query("format", "Form of the answer.", {"enum": ["json", "coco", "image"], "default": "json"}),
        {**_in_query("X-Timeout", "Seconds until the answer.", _number(0.01, 600)), "in": "header"},
        {**_in_query("X-Request-Id", "Name of the request in answers and logs.", _ID), "in": "header"},
    ]
    photo = {"schema": {"type": "string", "contentMediaType": "image/*"}}
    form = {"type": "object", "additionalProperties": {"type": "string", "contentMediaType": "image/*"}}
    answers = _json({"anyOf": [_ref("DetectAnswer"), _list("CocoResult")]}) | _binary("image/jpeg")
    codes = (404, 408, 413, 415, 422, 429, 503, 504)
    return {
        **_get("Find objects in photos", answers, parameters, codes=codes),
        "description": (
            f"One photo as the body, or up to {MAX_PHOTOS} files of a form; at most {MAX_BYTES // 1024**2} "
            f"MiB, and {MAX_PIXELS // 10**6} megapixels each. Boxes are in pixels of the upright photo."
        ),
        "requestBody": {
            "required": True,
            "content": {
                "image/*": photo,
                "application/octet-stream": photo,
                "multipart/form-data": {"schema": form},
            },
        },
    }


_ID = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}


def _get(
    summary: str, content: Tree, parameters: list[Tree] | None = None, codes: tuple[int, ...] = ()
) -> Tree:
    responses: Tree = {"200": {"description": "The answer", "content": content}}
    for code in sorted({*_ALWAYS, *codes}):
        responses[str(code)] = {"description": _ERRORS[code], "content": _json(_ref("ErrorAnswer"))}
    return {"summary": summary, "parameters": parameters or [], "responses": responses}


def _health(summary: str, name: str, codes: tuple[int, ...] = (200,)) -> Tree:
    schema = {"type": "object", "properties": {name: {"type": "boolean"}}, "required": [name]}
    answers = {str(code): {"description": summary, "content": _json(schema)} for code in codes}
    return {"summary": summary, "responses": answers, "security": [{}]}


def _json(schema: Tree) -> Tree:
    return {"application/json": {"schema": schema}}


def _binary(kind: str) -> Tree:
    return {kind: {"schema": {"type": "string"}}}


def _ref(name: str) -> Tree:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> Tree:
    return {"type": "array", "items": _ref(name)}


def _number(least: float, most: float, *, usual: float | None = None) -> Tree:
    return {"type": "number", "minimum": least, "maximum": most} | (
        {} if usual is None else {"default": usual}
    )


def _in_query(name: str, description: str, schema: Tree) -> Tree:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _in_path(name: str, schema: Tree) -> Tree:
    return {"name": name, "in": "path", "required": True, "schema": schema}
