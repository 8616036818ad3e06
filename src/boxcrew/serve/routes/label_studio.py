"""The protocol of Label Studio's machine learning backends: a project's tasks in, boxes to correct out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.serve.accepted import DetectQuery, client_left, find_photos
from boxcrew.serve.detecting import Finding
from boxcrew.serve.json_body import Tree, child, objects, parse_object
from boxcrew.serve.label_config import BoxControl, read_label_config
from boxcrew.serve.models import ServedModel
from boxcrew.serve.photo import NamedPhoto
from boxcrew.serve.refusals import json_response
from boxcrew.serve.service import service_of
from boxcrew.serve.task_photos import task_photo
from boxcrew.serve.uploads import MAX_PHOTOS, read_body

_PERCENT_DIGITS, _SCORE_DIGITS = 4, 6

Region = dict[str, Any]
"""One box, as Label Studio writes it."""


@dataclass(frozen=True, kw_only=True)
class _TaskImage:
    """An image of a task, and the tags that want its boxes."""

    task: int
    photo: NamedPhoto
    controls: Sequence[BoxControl]


@dataclass(frozen=True, kw_only=True)
class _Tasks:
    """The tasks of a request."""

    num: int
    images: Sequence[_TaskImage]

    @classmethod
    def of(cls, body: bytes, model: ServedModel, root: Path | None) -> Self:
        """Read tasks; `RefusedError` if one names no image that can be had."""
        tree = parse_object(body)
        controls = read_label_config(child(tree, "label_config", str), model.info.classes)
        tasks = objects(child(tree, "tasks", list), where="tasks")
        images = [image for i, task in enumerate(tasks) for image in _images(i, task, controls, root)]
        return cls(num=len(tasks), images=images)


async def label_studio_health(_: Request) -> Response:
    """Say that the backend is there."""
    return json_response({"status": "UP", "model_class": "boxcrew"})


async def label_studio_setup(request: Request) -> Response:
    """Say which model answers, and refuse a project that it cannot label."""
    service = service_of(request)
    service.require_ready()
    deadline = service.deadline(request)
    model = service.models.get(request.path_params.get("name"))
    with service.admission.request() as held:
        body = await read_body(request, held, deadline)
        check = partial(_check_schema, body, model)
        await service.pool.compute([check], deadline, partial(client_left, request))
    return json_response({"model_version": model.digest})


async def label_studio_predict(request: Request) -> Response:
    """Detect objects in the images of tasks, a group after the other."""
    service = service_of(request)
    service.require_ready()
    deadline = service.deadline(request)
    model = service.models.get(request.path_params.get("name"))
    request.scope["state"]["model"] = model.name
    with service.admission.request() as held:
        body = await read_body(request, held, deadline)
        read = partial(_Tasks.of, body, model, service.config.label_studio)
        (tasks,) = await service.pool.compute([read], deadline, partial(client_left, request))
        regions: list[list[Region]] = [[] for _ in range(tasks.num)]
        for start in range(0, len(tasks.images), MAX_PHOTOS):
            group = tasks.images[start : start + MAX_PHOTOS]
            asked = DetectQuery(model=model, score=_least_score(group, model), deadline=deadline)
            findings = await find_photos(request, asked, [image.photo for image in group])
            for image, finding in zip(group, findings, strict=True):
                regions[image.task] += _regions(image, finding, model)
    results = [_prediction(task, model) for task in regions]
    return json_response({"results": results, "model_version": model.digest})


def _check_schema(body: bytes, model: ServedModel) -> None:
    read_label_config(child(parse_object(body), "schema", str), model.info.classes)


def _images(
    number: int, task: Tree, controls: Sequence[BoxControl], root: Path | None
) -> Iterator[_TaskImage]:
    """Yield the images of a task, each once, whatever number of tags it has."""
    data = child(task, "data", dict, where=f"tasks[{number}].")
    for key in dict.fromkeys(control.key for control in controls):
        own = [control for control in controls if control.key == key]
        value = child(data, key, str, where=f"tasks[{number}].data.")
        # Keys are written by whoever made the project: messages repeat no more of them than of other names.
        photo = task_photo(value, f"tasks[{number}].data.{key[:40]}", root)
        yield _TaskImage(task=number, photo=photo, controls=own)


def _threshold(control: BoxControl, model: ServedModel) -> float:
    return model.threshold if control.threshold is None else control.threshold


def _least_score(images: Sequence[_TaskImage], model: ServedModel) -> float:
    """Return the score that is enough for a tag of one of the images."""
    return min(_threshold(control, model) for image in images for control in image.controls)


def _regions(image: _TaskImage, finding: Finding, model: ServedModel) -> Iterator[Region]:
    """Yield what was found as boxes in percent of the upright photo."""
    width, height = finding.extent
    scale = np.array([100 / width, 100 / height] * 2)
    for control in image.controls:
        shown = finding.detections.above(_threshold(control, model))
        for box, score, label in zip(shown.boxes * scale, shown.scores, shown.labels, strict=True):
            if int(label) not in control.labels:
                continue
            x0, y0, x1, y1 = (round(float(edge), _PERCENT_DIGITS) for edge in box)
            yield {
                "from_name": control.name,
                "to_name": control.image,
                "type": "rectanglelabels",
                "original_width": width,
                "original_height": height,
                "image_rotation": 0,
                "score": round(float(score), _SCORE_DIGITS),
                "value": {
                    "x": x0,
                    "y": y0,
                    "width": round(x1 - x0, _PERCENT_DIGITS),
                    "height": round(y1 - y0, _PERCENT_DIGITS),
                    "rotation": 0,
                    "rectanglelabels": [control.labels[int(label)]],
                },
            }


def _prediction(regions: Sequence[Region], model: ServedModel) -> dict[str, object]:
    """Return the prediction of a task, whose score is the mean of its boxes."""
    scores = [region["score"] for region in regions]
    result = [{"id": f"{model.version}-{number}", **region} for number, region in enumerate(regions)]
    score = round(fmean(scores), _SCORE_DIGITS) if scores else 0.0
    return {"model_version": model.digest, "score": score, "result": result}


ROUTES = [
    Route(f"{prefix}{path}", endpoint, methods=[method])
    for prefix in ("", "/v1/models/{name}/label-studio")
    for path, endpoint, method in (
        ("/health", label_studio_health, "GET"),
        ("/setup", label_studio_setup, "POST"),
        ("/predict", label_studio_predict, "POST"),
    )
]
"""Where the service has several models, each is a backend of its own, at an address of its own."""
