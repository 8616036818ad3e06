"""Weight files are read without running anything in them, and fitted to a network by name or by order."""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path
from statistics import median
from typing import Any

import cv2
import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

from boxcrew.core.errors import ModelError
from boxcrew.data.images.reading import read_image
from boxcrew.nets.backbones import Backbone
from boxcrew.nets.layers import Normalize
from boxcrew.nets.packaged import PACKAGED, packaged_weights
from boxcrew.nets.weights import (
    State,
    Weights,
    find_weights,
    match_state,
    read_weights,
    save_weights,
    summed_over_colors,
    timm_weights,
)


def state_of(*shapes: tuple[int, ...]) -> State:
    return {f"layer{i}.weight": torch.rand(shape) for i, shape in enumerate(shapes)}


def assert_same(first: State, second: State) -> None:
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_was_saved_is_read_back_with_its_notes(tmp_path: Path) -> None:
    state = state_of((2, 3, 3, 3), (4,), ()) | {"count": torch.tensor(3)}
    state["channels_last"] = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    meta = {"classes": ["tea pot", "茶"], "detector": {"name": "ssd", "size": 300}}
    file = tmp_path / "best.safetensors"
    save_weights(file, state, meta)
    weights = read_weights(file)
    assert_same(dict(sorted(weights.state.items())), dict(sorted(state.items())))
    assert weights.meta == meta
    assert weights.source == str(file)


@pytest.mark.parametrize("nested", [None, "state_dict", "model"])
def test_torch_files_are_read_with_or_without_a_wrapper(nested: str | None, tmp_path: Path) -> None:
    state = state_of((2, 3), (4,))
    file = tmp_path / "net.pth"
    torch.save({nested: state, "epoch": 3} if nested else state, file)
    assert_same(read_weights(file).state, state)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (str(self.file), 0o777)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_that_would_run_code_is_refused_and_runs_none(legacy: bool, tmp_path: Path) -> None:
    file, trap = tmp_path / "net.pth", tmp_path / "sprung"
    torch.save({"a": torch.ones(1), "b": Trap(trap)}, file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ModelError, match=r"net\.pth: holds more than tensors") as caught:
        read_weights(file)
    assert not trap.exists()
    assert caught.value.advice
    pickle.loads(pickle.dumps(Trap(trap)))
    assert trap.exists()  # the trap itself works


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_damaged_files_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"net{suffix}"
    if suffix == ".pth":
        torch.save(state_of((8, 8)), file, _use_new_zipfile_serialization=False)
    else:
        save_weights(file, state_of((8, 8)), {})
    whole = file.read_bytes()
    cuts = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 40))]
    for content in (*cuts, b"Dear Sir or Madam", b"<html></html>", bytes(range(256))):
        file.write_bytes(content)
        with pytest.raises(ModelError, match=f"net{suffix}: "):
            read_weights(file)


@pytest.mark.parametrize("content", [{}, {"epoch": 3}, {"model": {}}, [1, 2], torch.ones(3)])
def test_a_file_without_named_tensors_is_refused(content: object, tmp_path: Path) -> None:
    file = tmp_path / "net.pth"
    torch.save(content, file)
    with pytest.raises(ModelError, match="holds no tensors by name"):
        read_weights(file)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such weight file"):
        read_weights(tmp_path / "net.pth")


def test_a_run_stands_for_its_best_or_else_last_weights(tmp_path: Path) -> None:
    weights = tmp_path / "run" / "weights"
    weights.mkdir(parents=True)
    with pytest.raises(ModelError, match=r"weights/best\.safetensors or weights/last\.safetensors"):
        find_weights(tmp_path / "run", which="best")
    (weights / "last.safetensors").touch()
    assert find_weights(tmp_path / "run", which="best").name == "last.safetensors"
    (weights / "best.safetensors").touch()
    assert find_weights(tmp_path / "run", which="best").name == "best.safetensors"
    assert find_weights(tmp_path / "run", which="last").name == "last.safetensors"
    assert find_weights(weights / "last.safetensors", which="best").name == "last.safetensors"
    with pytest.raises(ModelError, match="no such run or weight file"):
        find_weights(tmp_path / "absent", which="best")


def test_fitting_by_name_takes_what_agrees_in_name_and_shape() -> None:
    ours = state_of((2, 3), (4,), (5,))
    theirs = {**state_of((2, 3), (4,), (6,)), "head.weight": torch.rand(7)}
    matched, how = match_state(ours, dict(reversed(theirs.items())))
    assert how == "by name"
    assert list(matched) == ["layer0.weight", "layer1.weight"]
    assert matched["layer0.weight"] is theirs["layer0.weight"]


def test_fitting_by_order_reads_two_spellings_side_by_side() -> None:
    ours = {**state_of((2, 3), (4,)), "norm.num_batches_tracked": torch.tensor(0), "last": torch.rand(5)}
    theirs = {"a": torch.rand(2, 3), "b": torch.rand(4), "c": torch.rand(5), "classifier": torch.rand(9)}
    matched, how = match_state(ours, theirs)
    assert how == "by order"
    assert {name: id(value) for name, value in matched.items()} == {
        "layer0.weight": id(theirs["a"]),
        "layer1.weight": id(theirs["b"]),
        "last": id(theirs["c"]),
    }


def test_another_network_that_begins_alike_is_not_fitted() -> None:
    ours = state_of((8, 3, 3, 3), (8,), (16, 8), (16,), (32, 16), (32,))
    theirs = {"a": torch.rand(8, 3, 3, 3), "b": torch.rand(8), "c": torch.rand(7, 7)}
    assert match_state(ours, theirs)[0] == {}


def fitted_backbone(name: str, weights: Weights) -> tuple[Backbone, str, int]:
    """The backbone with the weights in it, how they were fitted, and how many tensors were left unfilled."""
    backbone = Backbone(name, finest_stride=16)
    wanted = {n: t for n, t in backbone.body.state_dict().items() if t.is_floating_point()}
    matched, how = match_state(wanted, weights.state)
    backbone.body.load_state_dict(matched, strict=False)
    return backbone.eval(), how, len(wanted) - len(matched)


def photos(folder: Path) -> Tensor:
    """(6, 3, 224, 224) pixels of real photos."""
    files = sorted((folder / "coco128_yolo").rglob("*.jpg"))[:6]
    images = [cv2.resize(read_image(file), (224, 224)) for file in files]
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)


def agreement(backbone: Backbone, images: Tensor) -> float:
    """How well the means that each normalization sees on these images agree with those it remembers from
    ImageNet: the correlation over the channels, at the median normalization.
    """
    seen: list[float] = []

    def compare(norm: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        assert norm.running_mean is not None
        means = torch.stack((inputs[0].mean(dim=(0, 2, 3)), norm.running_mean))
        seen.append(float(torch.corrcoef(means)[0, 1]))

    norms = [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]
    handles = [norm.register_forward_pre_hook(compare) for norm in norms]
    with torch.no_grad():
        backbone(images)
    for handle in handles:
        handle.remove()
    assert len(seen) == len(norms)
    return median(seen)


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("efficientnet_lite0", "tf_efficientnet_lite0"),
        ("efficientnet_lite1", "tf_efficientnet_lite1"),
        ("efficientnet_lite2", "tf_efficientnet_lite2"),
        ("pplcnetv2", "pplcnetv2_base"),
    ],
)
def test_the_packaged_weights_fill_the_whole_backbone(shared_data: Path, name: str, network: str) -> None:
    if importlib.util.find_spec(PACKAGED[name].module) is None:
        pytest.skip(f"needs the package of the weights: {PACKAGED[name].install}")
    weights = packaged_weights(name)
    backbone, _, unfilled = fitted_backbone(network, weights)
    assert unfilled == 0
    assert weights.mean is not None
    assert weights.std is not None
    images = Normalize(weights.mean, weights.std)(photos(shared_data))
    assert agreement(backbone, images) > 0.9


def test_torchvision_weights_fill_timms_network_by_order(mobilenet_file: Path, shared_data: Path) -> None:
    weights = read_weights(mobilenet_file)
    backbone, how, unfilled = fitted_backbone("mobilenetv2_100", weights)
    assert (how, unfilled) == ("by order", 0)
    images = Normalize(*backbone.expected_normalization())(photos(shared_data))
    assert agreement(backbone, images) > 0.9
    # The measure can fail: the same tensors where convolutions of one shape stand in reversed order.
    shapes = {value.shape for value in weights.state.values() if value.ndim == 4}
    wrong = dict(weights.state)
    for shape in shapes:
        names = [name for name, value in wrong.items() if value.shape == shape]
        wrong |= dict(zip(names, [weights.state[name] for name in reversed(names)], strict=True))
    misplaced, _, unfilled = fitted_backbone("mobilenetv2_100", Weights(state=wrong, source=""))
    assert unfilled == 0
    assert agreement(misplaced, images) < 0.5


def test_a_first_layer_for_gray_pictures_says_the_same_of_three_equal_channels() -> None:
    state = {"stem": torch.rand(4, 3, 3, 3), "depthwise": torch.rand(4, 1, 3, 3), "norm": torch.rand(3)}
    gray_state = summed_over_colors(state)
    gray = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(
        nn.functional.conv2d(gray, gray_state["stem"]),
        nn.functional.conv2d(gray.expand(-1, 3, -1, -1), state["stem"]),
    )
    assert gray_state["depthwise"] is state["depthwise"]
    assert gray_state["norm"] is state["norm"]


@pytest.mark.parametrize("features_only", [False, True])
def test_classifiers_get_the_layers_behind_the_maps_too(
    features_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = timm.create_model

    def offline(name: str, *, pretrained: bool, **options: Any) -> Any:
        """What a download would fill."""
        assert pretrained
        return made(name, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    state = timm_weights("mobilenetv3_small_050", features_only=features_only).state
    wanted = made("mobilenetv3_small_050", num_classes=0).state_dict()
    assert (state.keys() == wanted.keys()) == (not features_only)
    assert any(name.startswith("conv_head") for name in wanted)
