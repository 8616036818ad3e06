"""Digests of the weights and batches of every recipe, to be compared before and after a change of the code.

`python -m bench.digests > before.json`. A refactoring must not change them. They hold for one machine and its
installed packages, so they are never stored.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import torch

from bench.small_set import write_small
from boxcrew.core.config import Tree
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch
from boxcrew.nets.packaged import PACKAGED
from boxcrew.recipes import RECIPES
from boxcrew.tasks import frechet_features
from boxcrew.tasks.base import TASKS
from boxcrew.tasks.data import LoaderOptions, OpenOptions
from boxcrew.train.config import RunConfig
from boxcrew.train.init import Pretrained
from boxcrew.train.loop.checkpoint import list_checkpoints, read_checkpoint
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import train

SIZE = 64
NUM_BATCHES = 3

VARIANTS: dict[str, tuple[str, Tree]] = {
    **{name: (name, {}) for name in RECIPES.names()},
    "language_model": ("rnn", {"data": "shop_talk", "task": {"length": 16}}),
    "wgan_gp": (
        "gan",
        {"task": {"loss": "wasserstein", "penalty": 10.0, "critic_steps": 2, "spectral_norm": False}},
    ),
    "clones": ("starter", {"deploy": {"clones": 2, "clone_on_cpu": True, "shares": [3, 1]}}),
}


def config_of(variant: str, data: Path, out: Path) -> RunConfig:
    """The recipe of a variant, made small enough to train in seconds."""
    name, changes = VARIANTS[variant]
    recipe = RECIPES.get(name)()
    settings: Tree = {
        "data": str(data),
        "out": str(out),
        "steps": 4,
        "batch": 4,
        "trial": False,
        "evaluation": {"every_epochs": 100},
        "summaries": {"images": 0, "histograms": False},
        **changes,
    }
    if isinstance(recipe.init, Pretrained) and recipe.init.weights not in PACKAGED:  # would be downloaded
        settings["init"] = "scratch"
    try:
        return recipe.changed({**settings, "size": SIZE})
    except UsageError:  # a detector of one input size
        return recipe.changed({**settings, "steps": 2, "batch": 1})


def digest_of_weights(run: Path) -> str:
    """The digest of all tensors of the newest checkpoint: parameters, averages and optimizer state."""
    newest = read_checkpoint(list_checkpoints(run / "checkpoints")[-1])
    digest = hashlib.blake2b(digest_size=12)
    for name, tensor in sorted(newest.tensors.items()):
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def digest_of_batches(config: RunConfig) -> str:
    """The digest of the first batches that the recipe trains on."""
    opening = OpenOptions(data=config.data, seed=config.seed)
    data, _ = TASKS.get(config.task.name).open(config.task, opening).adapted()
    digest = hashlib.blake2b(digest_size=12)
    for batch in data.loader(LoaderOptions(batch=config.batch, seed=config.seed)).batches(
        num_steps=NUM_BATCHES
    ):
        _add_batch(digest, batch)
    return digest.hexdigest()


def _add_batch(digest: hashlib.blake2b, batch: Batch) -> None:
    digest.update(_bytes(batch.inputs))
    for name, tensor in sorted(batch.targets.items()):
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    digest.update(repr(batch.keys).encode())


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def main() -> None:
    frechet_features.STEPS = 1  # how well a GAN is evaluated does not matter here
    with tempfile.TemporaryDirectory() as folder:
        data = write_small("shelf", Path(folder) / "data", num_train=12, num_val=2)
        digests = {}
        for variant in sorted(VARIANTS):
            config = config_of(variant, data, Path(folder) / variant)
            train(config, Screen())
            digests[variant] = {
                "weights": digest_of_weights(Path(folder) / variant),
                "batches": digest_of_batches(config),
            }
    print(json.dumps(digests, indent=2))


if __name__ == "__main__":
    main()
