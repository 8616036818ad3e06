"""What pictures are compared by: features of a small classifier that learns from the same examples.

Fréchet distances are usually measured on the features of a network trained on ImageNet, which would have to
be downloaded, and which knows little of pictures of 28 pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import BoxcrewError
from boxcrew.data.examples.example_set import Examples
from boxcrew.nets.classifier import Classifier
from boxcrew.nets.layers import Normalize
from boxcrew.nets.small_cnn import SmallCnn, Stages
from boxcrew.nets.weights import read_weights, save_weights
from boxcrew.tasks.data import DataFacts
from boxcrew.tasks.quick_training import train_quickly

STEPS, WIDTH = 400, 16
VERSION = 1  # of how it is trained: distances by another are not comparable

Look = Callable[[Tensor], npt.NDArray[np.float64]]
"""Pictures uint8 (B, C, H, W) -> features (B, D)."""

_known: dict[str, Look] = {}


def feature_network(examples: Examples, facts: DataFacts) -> Look:
    """Trained once for a set of examples, in half a minute, always alike, and kept. Without classes to learn
    its weights stay random, which is still a fair measure, if a weaker one.
    """
    key = _key(examples, facts)
    if key not in _known:
        net = _network(facts)
        folder = cache_folder("features")
        file = None if folder is None else folder / f"{key}.safetensors"
        if not _load(net, file):
            if len(facts["classes"]) > 1:
                train_quickly(net, examples, steps=STEPS)
            _keep(net, file)
        _known[key] = _look(net.eval())
    return _known[key]


def _key(examples: Examples, facts: DataFacts) -> str:
    seen = hashlib.blake2b(np.ascontiguousarray(examples.labels).tobytes(), digest_size=16)
    seen.update(
        repr((VERSION, STEPS, WIDTH, facts["shape"], facts["mean"], facts["std"], torch.__version__)).encode()
    )
    seen.update(np.ascontiguousarray(examples.fetch(range(min(16, len(examples)))).inputs).tobytes())
    return seen.hexdigest()


def _network(facts: DataFacts) -> Classifier:
    size, _, channels = facts["shape"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = SmallCnn(channels, size, max(2, len(facts["classes"])), Stages(width=WIDTH))
    return Classifier(body, tuple(facts["classes"]), Normalize(facts["mean"], facts["std"]))


def _load(net: Classifier, file: Path | None) -> bool:
    if file is None or not file.is_file():
        return False
    with suppress(BoxcrewError, RuntimeError):
        net.load_state_dict(read_weights(file).state)
        return True
    return False


def _keep(net: Classifier, file: Path | None) -> None:
    with suppress(OSError):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_weights(file, net.state_dict(), {"format": 2})


def _look(net: Classifier) -> Look:
    def look(pictures: Tensor) -> npt.NDArray[np.float64]:
        with torch.inference_mode():
            return net.features(pictures).double().numpy()

    return look
