"""Requests of the Open Inference Protocol are read or refused, whatever has happened to them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from boxcrew.serve.json_body import MAX_VALUES, parse_object
from boxcrew.serve.refusals import RefusedError
from boxcrew.serve.tensors import InferRequest

PIXELS = [[[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 255, 1]]]]
BASES: Sequence[dict[str, Any]] = (
    {
        "id": "one",
        "parameters": {"score": 0.5, "binary_data_output": False},
        "inputs": [{"name": "photos", "datatype": "BYTES", "shape": [1], "parameters": {}, "data": ["eA=="]}],
        "outputs": [{"name": "boxes", "parameters": {"binary_data": True}}],
    },
    {
        "inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [1, 2, 2, 3], "data": PIXELS}],
        "outputs": [{"name": "counts"}],
    },
)
VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 1e308, 0.5, float("nan"), float("inf")),
    *("", "x", "é", "\ud800", "BYTES", "UINT8", "photos", "boxes", "eA=="),
    *([], [[]], {}, {"a": 1}, [1, 2], [1, 1, 1, 3], [{}], [None]),
)
KEYS = ("parameters", "data", "shape", "name", "binary_data_size", "score", "id", "classification")


def changed(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with another value, one more or one less, somewhere."""
    tree = json.loads(json.dumps(tree))
    node: Any = tree
    while True:
        place = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[place], dict | list) and node[place] and rng.random() < 0.7:
            node = node[place]
            continue
        value = json.loads(json.dumps(rng.choice(VALUES)))
        kind = rng.random()
        if kind < 0.6:
            node[place] = value
        elif kind < 0.75:
            del node[place]
        elif isinstance(node, dict):
            node[rng.choice(KEYS)] = value
        else:
            node.append(value)
        return tree


@pytest.mark.parametrize("seed", range(4))
def test_changed_requests_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(1500):
        tree = dict(rng.choice(BASES))
        for _ in range(rng.randint(1, 3)):
            tree = changed(tree, rng) if tree else tree
        body = json.dumps(tree).encode("utf-8", "surrogatepass")
        length = rng.choice([None, None, len(body), len(body) // 2, 0, 10**9])
        try:
            request = InferRequest.of(body, length)
        except RefusedError as error:
            outcomes["refused"] += error.status < 500
        else:
            assert request.photos
            assert 0 <= request.score <= 1
            outcomes["read"] += 1
    assert sum(outcomes.values()) == 1500
    assert min(outcomes.values()) > 20


def test_the_cost_of_json_is_known_before_it_is_parsed() -> None:
    for part in (b"[],", b"{},", b"0,"):
        with pytest.raises(RefusedError) as caught:
            parse_object(b'{"a":[' + part * MAX_VALUES + b"0]}")
        assert caught.value.status == 413
    assert parse_object(b'{"a":"' + b"x" * 10**7 + b'"}')
