"""The JavaScript in the documentation finds what `predict` finds."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from boxcrew import Detector
from tests.helpers.once import MakeOnce

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-a-model-without-boxcrew.md"
PACKAGES = ("onnxruntime-web@1.30.0", "jpeg-js@0.4.4")


@pytest.fixture(scope="module")
def node_modules(make_once: MakeOnce) -> Path:
    if shutil.which("npm") is None:
        pytest.skip("needs Node and npm")

    def install(folder: Path) -> None:
        words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
        subprocess.run(words, cwd=folder, check=False, timeout=240, capture_output=True)

    modules = make_once("node", install) / "node_modules"
    if not (modules / "jpeg-js").is_dir():
        pytest.skip("the packages cannot be installed by npm")
    return modules


def test_the_example_finds_what_predict_finds(node_modules: Path, exported_run: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "main.mjs").write_text(code.replace("[0.25]", "[0.01]"))
    (tmp_path / "node_modules").symlink_to(node_modules)
    for name in ("model-nms.onnx", "model-nms.report.json"):
        shutil.copy(exported_run / name, tmp_path / name)
    rng = np.random.default_rng(0)
    patches = Pillow.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    # Twice the size of the input: then both ways to resize are the same.
    patches.resize((192, 192), Pillow.Resampling.BILINEAR).save(tmp_path / "photo.jpg", quality=95)
    done = subprocess.run(
        ["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    lines = [line for line in done.stdout.splitlines() if "[" in line]
    wanted = Detector.load(exported_run / "model-nms.onnx").predict(tmp_path / "photo.jpg", score=0.01)
    assert len(wanted) > 0
    assert abs(len(lines) - len(wanted)) <= 0.1 * len(wanted)
    best = [float(number) for number in re.findall(r"-?\d+\.\d+", done.stdout)]
    assert best[0] == pytest.approx(float(wanted.scores[0]), abs=0.02)
