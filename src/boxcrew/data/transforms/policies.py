"""The augmentation policies of torchvision, by name."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from boxcrew.data.transforms.draws import Draws
from boxcrew.data.transforms.flip_shift_erase import Images

PolicyName = Literal["randaugment", "autoaugment", "trivialaugment"]


class Policy:
    """Applies a few changes of geometry and color, chosen at random for each image.

    randaugment: Cubuk et al. 2020; autoaugment: Cubuk et al. 2019, as found for CIFAR-10, whose images are
    small too; trivialaugment: Müller and Hutter 2021, in its wide form.
    """

    num_draws: ClassVar[int] = 1

    def __init__(self, name: PolicyName) -> None:
        from torchvision.transforms import v2

        # Nearest-pixel sampling loses too much of a small image.
        smooth = v2.InterpolationMode.BILINEAR
        makers: dict[PolicyName, Any] = {
            "randaugment": lambda: v2.RandAugment(interpolation=smooth),
            "autoaugment": lambda: v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10, interpolation=smooth),
            "trivialaugment": lambda: v2.TrivialAugmentWide(interpolation=smooth),
        }
        self._transform = makers[name]()

    def __call__(self, images: Images, draws: Draws) -> Images:
        """Return new images; `draws` (n, num_draws)."""
        assert draws.shape == (len(images), self.num_draws), draws.shape
        num_channels = images.shape[3]
        # The policies are written for three channels.
        colored = torch.from_numpy(np.repeat(images, 3, axis=3) if num_channels == 1 else images.copy())
        changed = np.empty_like(images)
        # torchvision draws from torch's default generator alone.
        with torch.random.fork_rng(devices=[]):
            for i, number in enumerate(draws[:, 0]):
                torch.default_generator.manual_seed(int(number * 2**53))
                result = self._transform(colored[i].permute(2, 0, 1))
                changed[i] = result[:num_channels].permute(1, 2, 0).numpy()
        return changed
