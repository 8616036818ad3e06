"""Photos in, boxes out."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, cast, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.core.registry import suggest
from boxcrew.serve.accepted import DetectQuery, draw_photo, find_photos
from boxcrew.serve.answers import detections_coco, detections_json, drawn
from boxcrew.serve.refusals import RefusedError, json_response
from boxcrew.serve.service import request_id_of, service_of
from boxcrew.serve.uploads import read_photos

Format = Literal["json", "coco", "image"]

_PARAMETERS = ("model", "score", "format")
_USUAL_SCORE = 0.25


async def detect(request: Request) -> Response:
    """Detect objects in the photos of a request."""
    service = service_of(request)
    service.require_ready()
    deadline = service.deadline(request)
    parameters = _parameters(request)
    score, form = _score(parameters.get("score")), _format(parameters.get("format", "json"))
    model = service.models.get(parameters.get("model"))
    request.scope["state"]["model"] = model.name
    asked = DetectQuery(model=model, score=score, deadline=deadline)
    with service.admission.request() as held:
        photos = await read_photos(request, held, deadline)
        if form == "image" and len(photos) != 1:
            raise RefusedError(
                400, "bad_request", "format=image takes one photo", advice="send one at a time"
            )
        if form == "image":
            draw = partial(drawn, model, score=score)
            picture = await draw_photo(request, asked, photos[0], draw)
            return Response(picture, media_type="image/jpeg")
        findings = await find_photos(request, asked, photos)
        if form == "coco":
            return json_response(detections_coco(findings, score))
        return json_response(detections_json(request_id_of(request), model, findings, score))


def _parameters(request: Request) -> dict[str, str]:
    """Return the settings in the URL; an error for one that does not exist, or is given twice."""
    parameters: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in _PARAMETERS:
            hint = suggest(name[:64], _PARAMETERS)
            raise RefusedError(400, "bad_request", "no such setting in the URL", advice=hint)
        if name in parameters:
            raise RefusedError(400, "bad_request", f"{name}: given twice", advice="give it once")
        parameters[name] = value
    return parameters


def _score(text: str | None) -> float:
    try:
        score = _USUAL_SCORE if text is None else float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= 1:
        raise RefusedError(400, "bad_request", "score: not a number", advice="give one from 0 to 1")
    return score


def _format(text: str) -> Format:
    if text in get_args(Format):
        return cast("Format", text)
    raise RefusedError(400, "bad_request", "format: not known", advice="give json, coco or image")


ROUTES = [Route("/v1/detect", detect, methods=["POST"])]
