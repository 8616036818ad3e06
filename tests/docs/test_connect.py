"""The clients on the page about other programs work that are not in Python, or need a package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from boxcrew import Detector
from boxcrew.data.images.reading import encode_image
from boxcrew.serve.label_config import read_label_config
from tests.helpers.served import Served, served

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "connect-to-the-service.md"


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def service(exported_run: Path) -> Iterator[Served]:
    with served(f"run={exported_run / 'model.onnx'}", "timeout=20") as running:
        yield running


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    pixels = np.kron(np.random.default_rng(0).integers(0, 256, (6, 8, 3)), np.ones((60, 60, 1)))
    (tmp_path / "photo.jpg").write_bytes(encode_image(pixels.astype(np.uint8)))
    return tmp_path / "photo.jpg"


def test_javascript(service: Served, photo: Path, exported_run: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    code = block("js").replace("http://127.0.0.1:8000", service.url).replace("score=0.5", "score=0.02")
    read = 'import { readFileSync } from "node:fs";\nconst photo = readFileSync("photo.jpg");\n'
    (photo.parent / "main.mjs").write_text(read + code)
    words = ["node", "main.mjs"]
    done = subprocess.run(words, cwd=photo.parent, capture_output=True, text=True, check=True, timeout=60)
    expected = Detector.load(exported_run / "model.onnx").predict(photo, score=0.02)
    lines = [line for line in done.stdout.splitlines() if re.match(r"\S+ 0\.\d+", line)]
    assert [line.split()[0] for line in lines] == expected.names
    assert len(expected) > 0


def test_the_client_of_triton(service: Served, photo: Path) -> None:
    pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    code = block("py").replace("127.0.0.1:8000", f"127.0.0.1:{service.port}")
    subprocess.run([sys.executable, "-c", code], cwd=photo.parent, check=True, timeout=60)


def test_the_label_config() -> None:
    (control,) = read_label_config(block("xml"), ["shoes", "pants", "clothes", "watch"])
    assert control.labels == {0: "shoes", 1: "Clothing", 2: "Clothing"}
    assert (control.name, control.image, control.key, control.threshold) == (
        "product",
        "picture",
        "image",
        0.4,
    )
