"""The features for Fréchet distances: those of a small classifier trained on the same examples.

Usually they are those of a network trained on ImageNet, which would have to be downloaded, and which knows
little of images of 28 pixels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import BoxcrewError
from boxcrew.data.examples.example_set import ExampleSplit
from boxcrew.nets.classifier import ClassifierNet
from boxcrew.nets.small_cnn import SmallCnn, Stages
from boxcrew.nets.weights import read_weights, save_weights
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.quick_training import train_quickly

STEPS, WIDTH = 400, 16
VERSION = 1  # of the training: distances of different versions are not comparable

FeatureExtractor = Callable[[Tensor], npt.NDArray[np.float64]]
"""Maps images uint8 (B, C, H, W) to features (B, D)."""

_known: dict[str, FeatureExtractor] = {}


def feature_network(examples: ExampleSplit, facts: ExampleFacts) -> FeatureExtractor:
    """Return the features of a network that is trained once for these examples, in half a minute, and cached.

    Training is deterministic. Without classes the weights stay random, which is a fair but weaker measure.
    """
    key = _key(examples, facts)
    if key not in _known:
        size, _, channels = facts.shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            body = SmallCnn(channels, size, max(2, len(facts.classes)), Stages(width=WIDTH))
        net = ClassifierNet(body, facts.classes, facts.normalization())
        folder = cache_folder("features")
        file = None if folder is None else folder / f"{key}.safetensors"
        if not _load(net, file):
            if len(facts.classes) > 1:
                train_quickly(net, examples, steps=STEPS)
            _store(net, file)
        _known[key] = partial(_extract, net.eval())
    return _known[key]


def _key(examples: ExampleSplit, facts: ExampleFacts) -> str:
    digest = hashlib.blake2b(np.ascontiguousarray(examples.labels).tobytes(), digest_size=16)
    known = (facts.to_json()[name] for name in ("shape", "mean", "std"))
    digest.update(repr((VERSION, STEPS, WIDTH, *known, torch.__version__)).encode())
    digest.update(np.ascontiguousarray(examples.fetch(range(min(16, len(examples)))).inputs).tobytes())
    return digest.hexdigest()


def _load(net: ClassifierNet, file: Path | None) -> bool:
    with suppress(BoxcrewError, RuntimeError):  # it is missing or damaged
        if file is not None:
            net.load_state_dict(read_weights(file).state)
            return True
    return False


def _store(net: ClassifierNet, file: Path | None) -> None:
    with suppress(OSError):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            save_weights(file, net.state_dict(), {"format": 2})


def _extract(net: ClassifierNet, images: Tensor) -> npt.NDArray[np.float64]:
    with torch.inference_mode():
        return net.features(images).double().numpy()
