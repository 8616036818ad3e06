"""A generator of images and its critic (DCGAN, Radford et al. 2016), and their losses."""

from __future__ import annotations

import itertools
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.errors import UsageError
from boxcrew.nets.layers import SingleCellNorm
from boxcrew.nets.spectral_norm import add_spectral_norm

Norm = Literal["none", "batch", "layer"]
GanLoss = Literal["standard", "hinge", "wasserstein"]

_COARSEST = {28: 7, 32: 4, 64: 4}  # side of an image -> side of the smallest map; it doubles in between


class GeneratorNet(nn.Module):
    """A network from random vectors to images; each layer doubles a map's side and halves its depth."""

    def __init__(self, latent: int, channels: int, size: int, *, width: int = 64) -> None:
        """Build the layers; `width` is the number of channels of the last map before the image."""
        super().__init__()
        self.latent = latent
        self.side = _coarsest(size)
        depths = _depths(size, width)[::-1]
        self.first = nn.Linear(latent, depths[0] * self.side**2, bias=False)
        self.first_norm = SingleCellNorm(depths[0])
        self.activation = nn.ReLU(inplace=True)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(depths):
            doubling = nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1, bias=False)
            layers += [doubling, SingleCellNorm(outputs), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.last = nn.ConvTranspose2d(depths[-1], channels, 4, stride=2, padding=1)

    def forward(self, latent: Tensor) -> Tensor:
        """Map (B, latent), standard normal, to images (B, channels, size, size) in -1..1."""
        maps = self.first(latent).unflatten(1, (-1, self.side, self.side))
        maps = self.layers(self.activation(self.first_norm(maps)))
        images: Tensor = self.last(maps).tanh()
        return images


class Critic(nn.Module):
    """A network that scores how real each image looks, built as the mirror image of the generator.

    With a gradient penalty the norm is "none" or "layer": a batch's statistics would make a sample's gradient
    depend on the others.
    """

    def __init__(
        self, channels: int, size: int, *, width: int = 64, spectral_norm: bool = False, norm: Norm = "none"
    ) -> None:
        """Build the layers; `width` is the number of channels of the first map."""
        super().__init__()
        depths = (channels, *_depths(size, width))
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(depths):
            norms: list[nn.Module] = []
            if layers and norm != "none":  # as in the paper, none on the images
                norms = [SingleCellNorm(outputs) if norm == "batch" else nn.GroupNorm(1, outputs)]
            halving = nn.Conv2d(inputs, outputs, 4, stride=2, padding=1, bias=not norms)
            layers += [halving, *norms, nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(depths[-1] * _coarsest(size) ** 2, 1)
        if spectral_norm:
            for layer in (*self.layers, self.head):
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    add_spectral_norm(layer)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (B, channels, size, size) in -1..1 to scores (B,), higher where more real."""
        scores: Tensor = self.head(self.layers(images).flatten(1))
        return scores.squeeze(1)


def _coarsest(size: int) -> int:
    if size not in _COARSEST:
        sizes = ", ".join(map(str, _COARSEST))
        raise UsageError(
            f"size={size}: the generator makes images of {sizes} pixels", advice="give one of these as size="
        )
    return _COARSEST[size]


def _depths(size: int, width: int) -> list[int]:
    """Return the channels of the maps, finest first."""
    num_halvings = (size // _coarsest(size)).bit_length() - 1
    return [width << i for i in range(num_halvings)]


def critic_loss(kind: GanLoss, real_scores: Tensor, fake_scores: Tensor) -> Tensor:
    """Return the critic's loss, a sum, from its scores (B,) of real and of generated images.

    standard: Goodfellow et al. 2014, equation 1; hinge: Miyato et al. 2018, equation 16; wasserstein:
    Arjovsky et al. 2017, equation 3, which needs a bound on the critic's slope, such as a gradient penalty.
    """
    if kind == "standard":
        return F.softplus(-real_scores).sum() + F.softplus(fake_scores).sum()
    if kind == "hinge":
        return F.relu(1 - real_scores).sum() + F.relu(1 + fake_scores).sum()
    return fake_scores.sum() - real_scores.sum()


def generator_loss(kind: GanLoss, fake_scores: Tensor) -> Tensor:
    """Return the generator's loss, a sum, from the critic's scores (B,) of generated images.
    "standard" is the non-saturating loss of Goodfellow et al. 2014, section 3.
    """
    return F.softplus(-fake_scores).sum() if kind == "standard" else -fake_scores.sum()
