"""Arguments of `python -m bench`."""

from __future__ import annotations

import importlib

import pytest

from bench.__main__ import BENCHES, GROUPS, parse_arguments
from boxcrew.core.errors import UsageError


def test_a_group_stands_for_its_benchmarks() -> None:
    names, _, settings = parse_arguments(["serve", "start_up", "repeats=1"])
    assert names == [*GROUPS["serve"], "start_up"]
    assert "serve_crowd" in names
    assert settings == {"repeats": "1"}


@pytest.mark.parametrize("name", GROUPS["serve"])
def test_every_benchmark_of_the_service_has_rows(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").rows)


def test_an_unknown_benchmark_is_named() -> None:
    with pytest.raises(UsageError, match="sevre"):
        parse_arguments(["sevre"])
    assert len(set(BENCHES)) == len(BENCHES)
