"""Every kind of network is exported, proved against torch on real files, and used from its file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from PIL import Image as Pillow
from torch import nn

from boxcrew import Classifier, Detector, Generator, TextModel
from boxcrew.core.config import Tree
from boxcrew.core.errors import ExportError, ModelError, UsageError
from boxcrew.core.types import Detections
from boxcrew.core.units import counted
from boxcrew.data.examples.formats.embedded import ProductScenes
from boxcrew.detectors import DETECTORS, DetectorNet
from boxcrew.export.int8 import quantized
from boxcrew.export.parity import compare_detections
from boxcrew.export.proof import evaluate_torch
from boxcrew.export.run import export
from boxcrew.export.settings import ExportConfig
from boxcrew.nets.weights import find_weights, read_weights, save_weights
from boxcrew.recipes import DEFAULT
from boxcrew.runtime.model_file import read_model, with_description
from boxcrew.testing.detectors import noise_batch, quick_config, with_regions
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import load_task
from tests.helpers.narrow import narrow_if_large
from tests.helpers.untrained import untrained_run

DETECTOR_NAMES = [name for name in DETECTORS.names() if name not in {"rcnn", "ssdlite"}]
"""Those that can be exported; files of SSDLite have tests of their own."""


FEW_REGIONS = {
    "fast_rcnn": {"proposals": 40, "head_width": 32},
    "sppnet": {"proposals": 40, "head_width": 32},
    "faster_rcnn": {"proposals": 40, "candidates": 60, "head_width": 32},
}
"""Settings of detectors that classify regions, so that they are quick."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The costs are measured for a moment only: how much they are says nothing here."""
    monkeypatch.setattr("boxcrew.export.costs._SECONDS", 0.001)


pytestmark = pytest.mark.usefixtures("quick")


def exported(run: Path, **settings: Any) -> Tree:
    return export(ExportConfig.of({"run": run, **settings}), Screen())


@pytest.fixture(scope="module")
def noisy_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A YOLO set of noise in several sizes. A part is flat: neighboring points there have the same score in
    torch, and with other last digits elsewhere.
    """
    root = tmp_path_factory.mktemp("noise")
    rng = np.random.default_rng(0)
    sizes = {"train": [(96, 96)], "val": [(96, 96), (120, 200), (200, 120), (97, 131)]}
    for split, listed in sizes.items():
        for folder in ("images", "labels"):
            (root / folder / split).mkdir(parents=True)
        for number, (height, width) in enumerate(listed):
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            if number:
                pixels[height // 2 :] = 250
            Pillow.fromarray(pixels).save(root / "images" / split / f"{number}.png")
            (root / "labels" / split / f"{number}.txt").write_text(f"{number % 3} 0.5 0.5 0.4 0.4\n")
    splits = {split: f"images/{split}" for split in sizes}
    names = ["cup", "book", "lamp"]
    (root / "data.yaml").write_text(yaml.safe_dump({**splits, "names": names}))
    return root


@pytest.fixture
def detector_run(tmp_path: Path, noisy_photos: Path) -> Callable[..., Path]:
    def make(name: str, *, is_raw: bool = False, **settings: Any) -> Path:
        config = quick_config(name)
        tree = {
            "data": str(noisy_photos),
            "task": {"name": "detection"},
            "detector": {**config.tree(), **settings},
        }
        with narrow_if_large(config):
            run = untrained_run(tmp_path / name, tree)
            if not is_raw:
                spread_scores(run)
            return run

    return make


def spread_scores(run: Path) -> None:
    """Make the scores of a network that has learned nothing differ as those of a trained one do: which of two
    boxes of nearly the same score is kept would be chance. Its BatchNorms get the statistics of noise.
    """
    file = find_weights(run, which="best")
    network = load_task(run, device="cpu").task.network
    assert isinstance(network, DetectorNet)
    draw = torch.Generator().manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    side = network.config.size.square
    batch = noise_batch((side, side), (1, 2, 3, 1, 2, 3), seed=1)
    with torch.no_grad():
        network.train()
        network.losses(with_regions(batch, network.config))
        for name in network.class_tensors():
            values = network.state_dict()[name]
            if values.ndim > 1:
                values += 0.1 * torch.randn(values.shape, generator=draw)
    meta = read_weights(file).meta
    assert meta is not None
    save_weights(file, network.state_dict(), meta)


@pytest.mark.parametrize("name", DETECTOR_NAMES)
def test_a_detector_finds_the_same_from_its_file(name: str, detector_run: Callable[..., Path]) -> None:
    run = detector_run(name, score_threshold=0.0001, **FEW_REGIONS.get(name, {}))
    with narrow_if_large(quick_config(name)):
        report = exported(run)
    file = Path(report["file"])
    assert report["proof"]["num_same"] == report["proof"]["num_samples"] == 4
    info = read_model(file).info
    assert info.network == name
    assert info.scores["AP"] == pytest.approx(report["exported"]["AP"])
    assert "Loop" not in {node.op_type for node in onnx.load(file).graph.node}  # a step for each region
    assert Detector.load(file).classes == ("cup", "book", "lamp")


def test_a_file_that_suppresses_gives_the_same(exported_run: Path, tiny_run: Path, tiny_set: Path) -> None:
    photos = sorted((tiny_set / "JPEGImages").iterdir())
    from_file = Detector.load(exported_run / "model-nms.onnx").predict(photos, score=0.0)
    for ours, theirs in zip(from_file, Detector.load(tiny_run).predict(photos, score=0.0), strict=True):
        assert len(theirs) > 0
        assert compare_detections(ours.detections, theirs.detections, least=0.01, most=200).is_allowed


def test_what_cannot_be_exported_says_why(detector_run: Callable[..., Path]) -> None:
    run = detector_run("rcnn", is_raw=True)
    with pytest.raises(ExportError, match="rcnn cannot be exported: it cuts regions out"):
        exported(run)
    run = detector_run("yolo", is_raw=True, size="64:96")
    with pytest.raises(ExportError, match=r"detector\.size=64:96: a file has one size") as caught:
        exported(run)
    assert caught.value.advice == "give a square, such as size=64"
    assert not (run / "export").exists()


@pytest.fixture
def few_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProductScenes, "num_images", {"train": 12, "val": 4, "test": 4})


NETWORKS: dict[str, Tree] = {
    "cnn": {"data": "products", "task": {"name": "classification"}, "net": {"name": "cnn", "width": 8}},
    "fc": {"data": "products", "task": {"name": "classification"}, "net": {"name": "fc", "widths": [16]}},
    "rnn": {"data": "products", "task": {"name": "sequence"}, "net": {"name": "rnn", "hidden": 16}},
    "gru": {
        "data": "products",
        "task": {"name": "sequence"},
        "net": {"name": "rnn", "hidden": 16, "cells": "gru", "layers": 2, "bidirectional": True},
    },
}


@pytest.mark.usefixtures("few_products")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_classifier_says_the_same_from_its_file(name: str, tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", NETWORKS[name])
    report = exported(run)
    assert report["proof"]["num_same"] == report["proof"]["num_samples"] > 10
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    ours, theirs = Classifier.load(report["file"]).predict(image), Classifier.load(run).predict(image)
    assert np.allclose(ours.probabilities, theirs.probabilities, atol=1e-5)


@pytest.mark.parametrize("cells", ["lstm", "gru"])
def test_a_language_model_continues_texts_the_same(cells: str, tmp_path: Path) -> None:
    net = {"name": "rnn", "hidden": 24, "cells": cells, "layers": 2}
    run = untrained_run(tmp_path / "run", {"data": "shop_talk", "task": {"name": "sequence"}, "net": net})
    report = exported(run)
    assert report["proof"]["worst_score"] < 1e-4
    models = TextModel.load(report["file"]), TextModel.load(run)
    for text in ("", "The shop", "a much longer text than the network was traced with, by far"):
        ours, theirs = (model.predict(text, num=30, seed=3) for model in models)
        assert ours == theirs


@pytest.mark.usefixtures("few_products")
def test_a_generator_makes_the_same_images(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", {"data": "products", "task": {"name": "gan", "width": 8}})
    report = exported(run, proof=False)
    ours, theirs = (Generator.load(path).predict(5, seed=1).pixels for path in (report["file"], run))
    assert np.abs(ours.numpy().astype(int) - theirs.numpy().astype(int)).max() <= 1


@pytest.fixture
def starter_file(exported_run: Path) -> Path:
    return exported_run / "model.onnx"


def test_a_triton_folder_is_written_beside_the_file(starter_file: Path) -> None:
    folder = starter_file.with_name("model_triton")
    assert (folder / "1" / "model.onnx").is_file()
    text = (folder / "config.pbtxt").read_text()
    assert 'input [{ name: "images" data_type: TYPE_UINT8 dims: [ 3, 96, 96 ] }]' in text
    assert "max_batch_size: 64" in text


def test_the_report_has_scores_costs_and_sizes(starter_file: Path) -> None:
    report = json.loads(starter_file.with_suffix(".report.json").read_text())
    assert report["written"]
    assert report["costs"].keys() == {"torch", "onnxruntime"}
    assert report["bytes"]["onnxruntime"] == pytest.approx(starter_file.stat().st_size, rel=0.2)


def test_a_file_with_operators_that_are_too_new_is_refused(
    starter_file: Path, exported_run: Path, tmp_path: Path
) -> None:
    model = onnx.load_from_string((exported_run / "traced.onnx").read_bytes())
    model.opset_import[0].version = 99
    file = tmp_path / "newer.onnx"
    file.write_bytes(with_description(model.SerializeToString(), read_model(starter_file).info))
    with pytest.raises(ModelError, match=r"newer\.onnx: ONNX Runtime [\d.]+ cannot use it: .*opset"):
        Detector.load(file)


def test_int8_needs_photos() -> None:
    with pytest.raises(ExportError, match="there is no photo to calibrate with"):
        quantized(b"", [])


def test_val_measures_the_file(starter_file: Path, tiny_set: Path, tiny_run: Path) -> None:
    ours = Detector.load(starter_file).val(tiny_set)
    theirs = Detector.load(tiny_run).val(tiny_set)
    assert ours["numbers"]["AP"] == pytest.approx(theirs["numbers"]["AP"], abs=1e-6)
    assert ours["weights"] == str(starter_file)


def test_an_output_that_exists_stays(starter_file: Path, tiny_run: Path) -> None:
    before = starter_file.read_bytes()
    with pytest.raises(ExportError, match="exists already"):
        exported(tiny_run, out=starter_file)
    assert starter_file.read_bytes() == before


@pytest.mark.usefixtures("traced")
def test_a_file_that_differs_is_not_written(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxcrew.export.parity.MAX_PIXELS", -1.0)  # nothing is so near
    out = tmp_path / "model.onnx"
    with pytest.raises(ExportError, match="0 of 4 photos with the same result as torch"):
        exported(tiny_run, out=out)
    assert [file.name for file in tmp_path.iterdir()] == ["model.report.json"]
    report = json.loads((tmp_path / "model.report.json").read_text())
    assert not report["written"]
    assert len(report["proof"]["differing"]) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "onx"}, "onx: no such export format; did you mean 'onnx'"),
        ({"out": "model.txt"}, "has to end in .onnx"),
        ({"int8": True, "proof": False}, "int8=true with proof=false"),
        ({"force": True}, "force=true: is for int8=true only"),
        ({"nsm": True}, "nsm: no such setting; did you mean 'nms'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Tree, message: str, tiny_run: Path) -> None:
    with pytest.raises((UsageError, ExportError), match=message):
        exported(tiny_run, **settings)


@pytest.mark.usefixtures("traced")
def test_int8_is_judged_by_its_ap(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    report = exported(tiny_run, out=out, int8=True, photos=4, max_loss=1)
    assert report["precision"] == read_model(out).info.precision == "int8"
    assert report["bytes"]["onnxruntime"] < report["bytes"]["torch"]
    assert report["costs"].keys() == report["bytes"].keys() == {"torch", "onnxruntime", "onnxruntime fp32"}
    assert report["plain"]["AP"] == pytest.approx(report["torch"]["AP"], abs=1e-4)
    assert len(Detector.load(out).predict(np.zeros((50, 60, 3), np.uint8), score=0.0)) >= 0


@pytest.mark.usefixtures("traced")
def test_int8_that_loses_too_much_is_refused(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluate_torch

    def better(*args: Any) -> Any:
        evaluation = real(*args)
        return replace(
            evaluation, report=replace(evaluation.report, numbers={**evaluation.numbers, "AP": 0.9})
        )

    monkeypatch.setattr("boxcrew.export.run.evaluate_torch", better)
    with pytest.raises(ExportError, match="AP falls by") as caught:
        exported(tiny_run, out=tmp_path / "model.onnx", int8=True, photos=2)
    assert "force=true" in caught.value.advice
    assert not (tmp_path / "model.onnx").exists()


NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "torchvision", "timm", "safetensors", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
from boxcrew import Detector

detector = Detector.load(sys.argv[1])
result = detector.predict(sys.argv[2], score=0.0)
print(repr(detector), len(result))
import numpy
numpy.savez(sys.argv[3], boxes=result.boxes, scores=result.scores, labels=result.labels)
assert "torch" not in sys.modules
try:
    Detector.load(sys.argv[4])
except Exception as error:
    print(type(error).__name__, error, error.advice)
"""


def test_a_detector_predicts_from_its_file_without_torch(
    starter_file: Path, tiny_run: Path, tiny_set: Path, tmp_path: Path
) -> None:
    photo, boxes = next((tiny_set / "JPEGImages").iterdir()), tmp_path / "found.npz"
    words = [sys.executable, "-c", NO_TORCH, str(starter_file), str(photo), str(boxes), str(tiny_run)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    first, second = done.stdout.splitlines()
    assert first.startswith("Detector(ssdlite in onnxruntime, 8 classes, ")
    assert "is not installed" in second
    assert "pip install 'boxcrew[train]'" in second
    wanted = Detector.load(tiny_run).predict(photo, score=0.0).detections
    found = Detections(**np.load(boxes))
    assert compare_detections(found, wanted, least=0.01, most=200).is_allowed


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("kind", ["openvino", "torch", "executorch", "ncnn"])
def test_other_formats_are_proved_too(kind: str, tiny_run: Path, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    report = exported(tiny_run, format=kind, out=tmp_path / "model")
    assert report["proof"]["num_same"] == report["proof"]["num_samples"] == 4
    assert read_model(tmp_path / "model").info.network == "ssdlite"


@pytest.mark.parametrize("name", ["picodet", "yolo", "yolo1"])
def test_a_detector_finds_the_same_in_ncnn(
    name: str, detector_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncnn")
    monkeypatch.setattr("boxcrew.export.run.onnx_model", lambda graph: b"")
    run = detector_run(name, score_threshold=0.0001)
    with narrow_if_large(quick_config(name)):
        report = exported(run, format="ncnn")
    assert report["proof"]["num_same"] == report["proof"]["num_samples"] == 4
    assert Detector.load(report["file"]).network_name == f"{name} in ncnn"


def test_converted_files_of_another_network_are_refused(
    detector_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ncnn")
    monkeypatch.setattr("boxcrew.export.run.onnx_model", lambda graph: b"")
    monkeypatch.setattr("boxcrew.export.formats.ncnn._OTHERS", {})  # PNNX alone gets it wrong
    run = detector_run("picodet", is_raw=True)
    with pytest.raises(ExportError, match="PNNX changes this network"):
        exported(run, format="ncnn")


@pytest.mark.parametrize("kind", ["openvino", "executorch", "ncnn"])
def test_a_missing_package_is_named(kind: str, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(ExportError, match=f"format={kind}: {kind} is not installed") as caught:
        exported(tiny_run, format=kind)
    assert caught.value.advice == f"pip install 'boxcrew[{kind}]'"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("executorch", "faster_rcnn", "an operator of the network is not among its own"),
        ("executorch", "fast_rcnn", r"its files cannot have inputs of any length \(num_regions\)"),
        ("ncnn", "faster_rcnn", "faster_rcnn chooses regions"),
    ],
)
def test_a_format_that_lacks_an_operator_says_so(
    kind: str, name: str, message: str, detector_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(kind)
    monkeypatch.setattr("boxcrew.export.run.onnx_model", lambda graph: b"")
    run = detector_run(name, is_raw=True, **FEW_REGIONS.get(name, {}))
    with narrow_if_large(quick_config(name)), pytest.raises(ExportError, match=message):
        exported(run, format=kind)
    assert not (run / "export").exists()


@pytest.mark.usefixtures("traced")
def test_openvino_files_take_the_place_of_a_run(tiny_run: Path, tmp_path: Path, tiny_set: Path) -> None:
    folder = Path(exported(tiny_run, format="openvino", out=tmp_path / "model", proof=False)["file"])
    photo = next((tiny_set / "JPEGImages").iterdir())
    ours, theirs = (Detector.load(path).predict(photo, score=0.0) for path in (folder, tiny_run))
    assert compare_detections(ours.detections, theirs.detections, least=0.01, most=200).is_allowed
    assert Detector.load(folder).network_name == "ssdlite in openvino"


def test_the_fastest_engine_is_measured(starter_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxcrew.runtime.exported._MEASURED", 0.02)
    facts = Detector.load(starter_file, engine="auto").engine
    assert facts.measured.keys() == {"onnxruntime", "openvino"}
    assert facts.name == min(facts.measured, key=lambda name: facts.measured[name])
    assert f"in fp32 on cpu, {counted(facts.threads, 'thread')}; fastest in" in facts.sentence()


def test_an_engine_that_does_not_exist_is_refused(starter_file: Path) -> None:
    with pytest.raises(UsageError, match="onnx: no such engine; did you mean 'onnxruntime'"):
        Detector.load(starter_file, engine="onnx")


def test_the_default_recipe_of_detectors_is_that_of_the_command_line() -> None:
    assert Detector.default_recipe == DEFAULT
