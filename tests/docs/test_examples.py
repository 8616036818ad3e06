"""The example files of the service are valid, and their commands are those of the service."""

from __future__ import annotations

import configparser
import importlib
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from boxcrew.core.config import parse_words
from boxcrew.serve.settings import ServeConfig

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "serve"
TOKEN = {"token": "correct-horse"}  # which both keep elsewhere


def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))


def container() -> Any:
    (deployment,) = [each for each in objects() if each["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize("number", range(len(objects())))
def test_kubernetes_takes_the_objects(number: int) -> None:
    importlib.import_module("kubernetes_validate").validate(objects()[number], "1.30", strict=True)


def test_the_command_in_kubernetes() -> None:
    pod = container()
    (service,) = pod["containers"]
    name, command, *words = service["command"]
    assert (name, command) == ("boxcrew", "serve")
    config = ServeConfig.of({**parse_words(words)[1], **TOKEN})
    assert config.port == service["ports"][0]["containerPort"]
    before = service["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > config.drain + before
    assert service["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"


def test_the_command_in_systemd() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLES / "boxcrew.service")
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("boxcrew", "serve")
    config = ServeConfig.of({**parse_words(words)[1], **TOKEN})
    assert float(unit["Service"]["TimeoutStopSec"]) > config.drain
    assert unit["Service"]["KillSignal"] == "SIGTERM"
