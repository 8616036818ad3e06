"""Lists the models and photos to try them with, and takes a new file for one."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from boxcrew.core.errors import BoxcrewError
from boxcrew.serve.answers import model_json
from boxcrew.serve.refusals import RefusedError, json_response
from boxcrew.serve.service import request_id_of, service_of


async def list_models(request: Request) -> Response:
    """Return all models that are served."""
    return json_response([model_json(model) for model in service_of(request).models.all()])


async def show_model(request: Request) -> Response:
    """Return what there is to know about one model."""
    return json_response(model_json(service_of(request).models.get(request.path_params["name"])))


async def show_sample(request: Request) -> Response:
    """Return a photo to try a model with."""
    samples = service_of(request).models.get(request.path_params["name"]).samples
    number: int = request.path_params["number"]
    if number >= len(samples):
        raise RefusedError(
            404, "not_found", "no such sample", advice=f"there are {len(samples)}, numbered from 0"
        )
    return Response(samples[number], media_type="image/jpeg")


async def reload_model(request: Request) -> Response:
    """Serve the file of a model as it is now, if it answers; else the old one stays in use."""
    service = service_of(request)
    service.require_ready()
    if service.config.on == "ray":
        message, advice = (
            "a reload would reach one of several replicas",
            "serve the new file with a new command",
        )
        raise RefusedError(409, "bad_request", message, advice=advice)
    name = service.models.get(request.path_params["name"]).name
    try:
        model = await service.pool.run(partial(service.models.reload, name))
    except BoxcrewError as error:
        service.log.failure("reload", error, request=request_id_of(request), model=name)
        message = f"the new file of {name} cannot be used; the old one stays in use"
        advice = "export it again; the log of the service says what is wrong with it"
        raise RefusedError(409, "broken_model", message, advice=advice) from None
    service.log.write("reload", request=request_id_of(request), model=name, version=model.version)
    return json_response(model_json(model))


ROUTES = [
    Route("/v1/models", list_models),
    Route("/v1/models/{name}", show_model),
    Route("/v1/models/{name}/samples/{number:int}", show_sample),
    Route("/v1/models/{name}/reload", reload_model, methods=["POST"]),
]
