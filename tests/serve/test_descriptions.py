"""The description of the routes fits what they do, and its page needs nothing from elsewhere."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import TypeAdapter

from boxcrew.serve.app import ROUTES
from boxcrew.serve.openapi import CocoResult, DetectAnswer, ErrorAnswer, ModelAnswer
from boxcrew.serve.page_files import FOLDER, read_page
from tests.helpers.served import Served


def test_every_route_is_described(service: Served) -> None:
    described = {
        (path, method.upper())
        for path, methods in service.ask("/openapi.json").json["paths"].items()
        for method in methods
    }
    offered = {
        (re.sub(r":\w+}", "}", route.path), method)
        for route in ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert offered == described


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/detect?score=0.02", DetectAnswer),
        ("/v1/detect?score=0.02&format=coco", list[CocoResult]),
        ("/v1/detect?score=2", ErrorAnswer),
        ("/v1/models", list[ModelAnswer]),
    ],
)
def test_answers_are_as_described(path: str, kind: type, service: Served, photo: bytes) -> None:
    body = photo if "detect" in path else None
    TypeAdapter(kind).validate_json(service.ask(path, body).body, strict=True)


def test_references_lead_somewhere(service: Served) -> None:
    text = service.ask("/openapi.json").body.decode()
    schemas = json.loads(text)["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', text)) == set(schemas)


def test_the_page_of_routes_is_there(service: Served) -> None:
    answer = service.ask("/docs")
    assert answer.status == 200
    for name in re.findall(r'(?:src|href)="(/[^"]*)"', answer.body.decode()):
        assert name == "/" or service.ask(name).status == 200
    again = service.ask("/docs", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_files_of_pages_name_no_other_site() -> None:
    for name, file in read_page(FOLDER).items():
        if file.kind.startswith("text/") or name.endswith(".svg"):
            links = set(re.findall(r"https?://[^\s\"'`)<$]+", file.content.decode()))
            assert {link for link in links if "www.w3.org" not in link} == set(), name
