"""A trained GAN, which generates images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from boxcrew.api.model import Model
from boxcrew.core.errors import UsageError
from boxcrew.report.predictions import GeneratedImages
from boxcrew.tasks.gan import GanConfig, normal, to_pixels
from boxcrew.train.run.loading import Loaded, Which

_STREAM = 20  # number of the random stream for the noise


class Generator(Model):
    """The generator of a trained GAN.
    `Generator.load("runs/gan/train").predict(16).save("generated")`
    """

    kind = "gan"
    default_recipe = "gan"

    def __init__(self, loaded: Loaded, path: Path, which: Which, device: str) -> None:
        super().__init__(loaded, path, which, device)
        assert isinstance(loaded.config, GanConfig)
        self._latent = loaded.config.latent

    def predict(self, num: int = 64, *, seed: int = 0) -> GeneratedImages:
        """Generate `num` images; the same seed gives the same ones."""
        if num < 1 or seed < 0:
            raise UsageError(f"num={num}, seed={seed}: num is at least 1, seed 0")
        noise = torch.from_numpy(normal(seed, 0, np.arange(num), self._latent, stream=_STREAM))
        with self._loaded.deployment, torch.inference_mode():
            return GeneratedImages(
                to_pixels(self._loaded.task.network(self._loaded.deployment.to_device(noise)))
            )

    __call__ = predict

    def _summary(self) -> str:
        return f"images of {' x '.join(map(str, self._loaded.facts['shape']))}"
