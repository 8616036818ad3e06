"""A trained GAN, which generates images."""

from __future__ import annotations

import numpy as np
import torch

from boxcrew.api.model import TorchModel
from boxcrew.report.generated_images import GeneratedImages
from boxcrew.tasks.gan import GanConfig, normal, to_pixels


class Generator(TorchModel):
    """The generator of a trained GAN.
    `Generator.load("runs/gan/train").predict(16).save("generated")`
    """

    predicts = "images"
    default_recipe = "gan"

    def predict(self, num: int = 64, *, seed: int = 0) -> GeneratedImages:
        """Generate `num` images; the same seed gives the same ones."""
        config: GanConfig = self.loaded.config
        noise = normal(seed, 0, np.arange(num), config.latent, stream=20)
        with self.loaded.deployment, torch.inference_mode():
            made = self.loaded.task.network(self.loaded.deployment.to_device(torch.from_numpy(noise)))
        return GeneratedImages(to_pixels(made))

    __call__ = predict
