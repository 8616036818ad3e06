"""Crops of regions against sampling by hand."""

from __future__ import annotations

import torch

from boxcrew.nets.region_crops import crop_regions


def gradient_image(height: int, width: int) -> torch.Tensor:
    """An image whose channels are the positions of the centers of its pixels, in x, in y, and a constant."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    return torch.stack((x, y, torch.ones_like(x)))[None]


def test_the_whole_image_is_itself() -> None:
    image = torch.randn(1, 3, 32, 32)
    crop = crop_regions(image, torch.tensor([[[0.0, 0.0, 32.0, 32.0]]]), size=32, context=0)
    torch.testing.assert_close(crop, image)


def test_regions_are_warped_with_context() -> None:
    """A crop of 96 with 16 px of context shows 1.5 times the region: both axes by their own factor."""
    image = gradient_image(200, 300)
    box = torch.tensor([[[100.0, 60.0, 180.0, 100.0]]])
    crop = crop_regions(image, box, size=96, context=16)[0]
    wanted_x = 80 + (torch.arange(96) + 0.5) / 96 * 120
    wanted_y = 50 + (torch.arange(96) + 0.5) / 96 * 60
    torch.testing.assert_close(crop[0], wanted_x.expand(96, 96), atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(crop[1], wanted_y[:, None].expand(96, 96), atol=1e-3, rtol=1e-5)


def test_outside_of_the_image_is_the_mean_color() -> None:
    crop = crop_regions(gradient_image(64, 64), torch.tensor([[[0.0, 0.0, 32.0, 32.0]]]), size=96, context=16)
    assert (crop[0, 2, :14] == 0).all()  # a third of a pixel of the image is a pixel of the crop
    assert (crop[0, 2, 16:80, 16:80] == 1).all()


def test_padding_and_tensors_without_data() -> None:
    assert crop_regions(torch.randn(1, 3, 8, 8), torch.zeros(1, 2, 4), size=32, context=4).isfinite().all()
    bare = crop_regions(
        torch.empty(2, 3, 64, 64, device="meta"), torch.empty(2, 5, 4, device="meta"), size=48, context=8
    )
    assert bare.shape == (10, 3, 48, 48)
