"""Small layers."""

from __future__ import annotations

import torch

from boxcrew.nets.layers import L2Norm, Normalize, SingleCellNorm, conv_norm, separable_head


def test_normalizing_takes_pixels_from_0_to_255() -> None:
    normalize = Normalize((0.5, 0.25, 0.0), (0.5, 0.25, 1.0))
    pixels = torch.tensor([255, 0, 51], dtype=torch.uint8).reshape(1, 3, 1, 1)
    wanted = torch.tensor([1.0, -1.0, 0.2]).reshape(1, 3, 1, 1)
    torch.testing.assert_close(normalize(pixels), wanted)
    torch.testing.assert_close(normalize(pixels.float()), wanted)
    assert pixels.flatten().tolist() == [255, 0, 51]


def test_mean_and_deviation_travel_with_the_weights() -> None:
    first, second = Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), Normalize((0, 0, 0), (1, 1, 1))
    second.load_state_dict(first.state_dict())
    second_images = torch.rand(1, 3, 2, 2) * 255
    assert torch.equal(first(second_images), second(second_images))
    second.set((0, 0, 0), (1, 1, 1))
    torch.testing.assert_close(second(second_images), second_images / 255)


def test_normalizing_keeps_the_memory_format() -> None:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8).to(memory_format=torch.channels_last)
    normalized = Normalize((0, 0, 0), (1, 1, 1))(images)
    assert normalized.is_contiguous(memory_format=torch.channels_last)


def test_each_position_has_the_length_of_the_scale() -> None:
    features = torch.randn(2, 8, 3, 3)
    lengths = L2Norm(8, scale=20.0)(features).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((2, 3, 3), 20.0))


def test_a_position_without_features_stays_finite() -> None:
    features = torch.zeros(1, 4, 2, 2, requires_grad=True)
    normed = L2Norm(4, scale=20.0)(features)
    (gradient,) = torch.autograd.grad(normed.sum(), features)
    assert (normed == 0).all()
    assert gradient.isfinite().all()


def test_one_image_with_a_single_cell_can_be_trained_on() -> None:
    norm = SingleCellNorm(4).train()
    single = torch.randn(1, 4, 1, 1)
    torch.testing.assert_close(norm(single), norm.eval()(single))
    assert norm.running_mean is not None
    assert (norm.running_mean == 0).all()  # one value says nothing about the others


def test_elsewhere_it_is_batch_normalization() -> None:
    features = torch.randn(2, 4, 3, 3)
    ours, theirs = SingleCellNorm(4).train(), torch.nn.BatchNorm2d(4).train()
    assert torch.equal(ours(features), theirs(features))
    assert torch.equal(ours.eval()(features), theirs.eval()(features))


def test_convolutions_keep_the_size_of_the_map() -> None:
    features = torch.randn(2, 6, 5, 7)
    assert conv_norm(6, 4, 3)(features).shape == (2, 4, 5, 7)
    assert conv_norm(6, 4, 3, stride=2)(features).shape == (2, 4, 3, 4)
    assert separable_head(6, 9)(features).shape == (2, 9, 5, 7)
