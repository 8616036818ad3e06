"""Reads JSON that strangers have sent: what it may cost is known before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

from boxcrew.core.registry import suggest
from boxcrew.serve.refusals import RefusedError

MAX_VALUES = 1_000_000
"""Values of a JSON text, at most. Each may take 64 bytes, and nobody else is answered while it is parsed."""

Tree = Mapping[str, object]

_T = TypeVar("_T")
_KINDS: Mapping[type, str] = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}


def bad_request(message: str, *, advice: str = "") -> RefusedError:
    """Return the error of a request that breaks its protocol."""
    return RefusedError(400, "bad_request", message, advice=advice)


def parse_object(content: bytes) -> Tree:
    """Return the object that a JSON text is; `RefusedError` for anything else."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES:
        message = f"more than {MAX_VALUES:,} values in JSON"
        advice = "send photos as files, or tensors in their binary form"
        raise RefusedError(413, "too_large", message, advice=advice)
    try:
        tree = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON", advice="send a JSON object in UTF-8") from None
    if not isinstance(tree, dict):
        raise bad_request("the body is not a JSON object")
    return tree


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


def child(tree: Tree, name: str, kind: type[_T], *, where: str = "") -> _T:
    """Return a value that has to be there, of a kind of JSON."""
    if name not in tree:
        raise bad_request(f"{where}{name}: is missing")
    value = tree[name]
    if not isinstance(value, kind):
        raise bad_request(f"{where}{name}: is not {_KINDS[kind]}")
    return value


def optional_child(tree: Tree, name: str, *, default: _T, where: str = "") -> _T:
    """Return a value that may be missing, of the same kind as the default."""
    return default if name not in tree else child(tree, name, type(default), where=where)


def optional_object(tree: Tree, name: str, *, where: str = "") -> Tree:
    """Return an object that may be missing."""
    empty: dict[str, object] = {}
    return optional_child(tree, name, default=empty, where=where)


def objects(values: Sequence[object], *, where: str) -> list[Tree]:
    """Return the members of a list, which have to be objects."""
    trees: list[Tree] = [value for value in values if isinstance(value, dict)]
    if len(trees) != len(values):
        raise bad_request(f"{where}: is not a list of objects")
    return trees


def require_known(name: str, options: Sequence[str], *, what: str) -> None:
    """Refuse a name that is not among the options."""
    if name not in options:
        raise bad_request(f"{what}: no such name", advice=suggest(name[:64], options))
