"""torchvision's augmentation policies, by name."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from boxcrew.data.transforms.draws import Draws
from boxcrew.data.transforms.small_pictures import Pictures

PolicyName = Literal["randaugment", "autoaugment", "trivialaugment"]


class Policy:
    """A few changes of geometry and colour, chosen at random for each picture.

    randaugment: Cubuk et al. 2020; autoaugment: Cubuk et al. 2019, as found for CIFAR-10, whose pictures are
    small too; trivialaugment: Müller and Hutter 2021, in its wide form.
    """

    num_draws: ClassVar[int] = 1

    def __init__(self, name: PolicyName) -> None:
        from torchvision.transforms import v2

        # Small pictures lose too much to the nearest pixel.
        smooth = v2.InterpolationMode.BILINEAR
        makers: dict[PolicyName, Any] = {
            "randaugment": lambda: v2.RandAugment(interpolation=smooth),
            "autoaugment": lambda: v2.AutoAugment(v2.AutoAugmentPolicy.CIFAR10, interpolation=smooth),
            "trivialaugment": lambda: v2.TrivialAugmentWide(interpolation=smooth),
        }
        self._transform = makers[name]()

    def __call__(self, pictures: Pictures, draws: Draws) -> Pictures:
        """`draws` (n, num_draws). The pictures given are not changed."""
        assert draws.shape == (len(pictures), self.num_draws), draws.shape
        num_channels = pictures.shape[3]
        # Colours of their own for grey pictures too: the policies are written for three.
        images = torch.from_numpy(np.repeat(pictures, 3, axis=3) if num_channels == 1 else pictures.copy())
        changed = np.empty_like(pictures)
        # torchvision draws from torch's own source alone.
        with torch.random.fork_rng(devices=[]):
            for i, number in enumerate(draws[:, 0]):
                torch.default_generator.manual_seed(int(number * 2**53))
                one = self._transform(images[i].permute(2, 0, 1))
                changed[i] = one[:num_channels].permute(1, 2, 0).numpy()
        return changed
