"""The Open Inference Protocol (version 2, over HTTP), so that clients of Triton and KServe can ask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.core.version import VERSION
from boxcrew.serve.accepted import DetectQuery, client_left, find_photos
from boxcrew.serve.json_body import bad_request
from boxcrew.serve.models import ServedModel
from boxcrew.serve.refusals import RefusedError, json_response
from boxcrew.serve.service import Service, service_of
from boxcrew.serve.tensors import INPUTS, OUTPUTS, InferRequest, encode_outputs, output_tensors
from boxcrew.serve.uploads import read_body

_LENGTH = "Inference-Header-Content-Length"
_MOST_DIGITS = 9


async def server_metadata(_: Request) -> Response:
    """Return what the server is, and which extensions it has."""
    return json_response({"name": "boxcrew", "version": VERSION, "extensions": ["binary_tensor_data"]})


async def model_metadata(request: Request) -> Response:
    """Return what a model takes and what it finds."""
    model = _model(request, service_of(request))
    return json_response(
        {
            "name": model.name,
            "versions": [model.version],
            "platform": f"boxcrew_{model.engine}",
            "inputs": _described(INPUTS),
            "outputs": _described(OUTPUTS),
        }
    )


async def model_ready(request: Request) -> Response:
    """Say whether a model answers photos now."""
    service = service_of(request)
    model = _model(request, service)
    ready = service.is_ready
    return json_response({"name": model.name, "ready": ready}, status=200 if ready else 503)


async def infer(request: Request) -> Response:
    """Detect objects in photos that are sent as tensors."""
    service = service_of(request)
    service.require_ready()
    deadline = service.deadline(request)
    model = _model(request, service)
    request.scope["state"]["model"] = model.name
    header_length = _header_length(request)
    with service.admission.request() as held:
        body = await read_body(request, held, deadline)
        read = partial(InferRequest.of, body, header_length)
        (wanted,) = await service.pool.compute([read], deadline, partial(client_left, request))
        asked = DetectQuery(model=model, score=wanted.score, deadline=deadline)
        findings = await find_photos(request, asked, wanted.photos)
    head = {"model_name": model.name, "model_version": model.version}
    if wanted.id is not None:
        head["id"] = wanted.id
    tensors = output_tensors([finding.detections for finding in findings], wanted.score)
    content, length = encode_outputs(head, tensors, wanted.outputs)
    if length is None:
        return Response(content, media_type="application/json")
    return Response(content, headers={_LENGTH: str(length)}, media_type="application/octet-stream")


def _described(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[dict[str, object]]:
    return [
        {"name": name, "datatype": datatype, "shape": list(shape)}
        for name, (datatype, shape) in tensors.items()
    ]


def _model(request: Request, service: Service) -> ServedModel:
    """Return the model that the path names, with its version if that is there too."""
    if not service.warm.is_set():
        headers = {"Retry-After": "1"}
        raise RefusedError(503, "not_ready", "the model is being loaded", advice="ask again", headers=headers)
    name, version = request.path_params["name"], request.path_params.get("version")
    return service.models.get(name if version is None else f"{name}@{version}")


def _header_length(request: Request) -> int | None:
    """Return how many bytes of the body are JSON; None for all."""
    text = request.headers.get(_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise bad_request(f"{_LENGTH}: is not a number of bytes")
    return int(text)


def _routes_of_models() -> list[Route]:
    return [
        Route(f"/v2/models/{{name}}{version}{path}", endpoint, methods=[method])
        for version in ("", "/versions/{version}")
        for path, endpoint, method in (
            ("", model_metadata, "GET"),
            ("/ready", model_ready, "GET"),
            ("/infer", infer, "POST"),
        )
    ]


ROUTES = [Route("/v2", server_metadata), *_routes_of_models()]
