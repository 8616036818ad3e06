from __future__ import annotations

import pytest
import torch
from timm.layers import DropPath
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.small_cnn import ResidualBlock, SmallCnn, Stages


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (3, 64), (1, 8)])
def test_pictures_become_scores(channels: int, size: int) -> None:
    network = SmallCnn(channels, size, 10, Stages(width=8))
    pictures = torch.randn(2, channels, size, size)
    assert network(pictures).shape == (2, 10)
    assert network.features(pictures).shape == (2, 32)


def test_large_pictures_cost_little_more() -> None:
    sides = []
    for size in (32, 64):
        network = SmallCnn(3, size, 10, Stages(width=4))
        network.stages[0].register_forward_hook(lambda *arguments: sides.append(arguments[2].shape[-1]))
        network(torch.randn(1, 3, size, size))
    assert sides == [16, 16]


def test_depth_is_the_blocks_of_a_stage() -> None:
    network = SmallCnn(1, 28, 10, Stages(width=4, depth=3))
    assert [len(stage) for stage in network.stages] == [3, 3, 3]  # type: ignore[arg-type]


def test_a_block_that_learned_nothing_is_its_shortcut() -> None:
    block = ResidualBlock(6, 6, activation="relu", drop_path=0.0)
    torch.nn.init.zeros_(block.second_norm.weight)
    maps = torch.randn(2, 6, 5, 5)
    assert torch.equal(block(maps), maps.relu())


def test_a_block_does_not_change_its_input() -> None:
    maps = torch.randn(2, 6, 5, 5)
    before = maps.clone()
    ResidualBlock(6, 6, activation="relu", drop_path=0.5)(maps)
    ResidualBlock(6, 9, activation="relu", drop_path=0.5)(maps)
    assert torch.equal(maps, before)


def test_later_blocks_are_left_out_more_often() -> None:
    network = SmallCnn(1, 28, 10, Stages(width=4, depth=2, drop_path=0.3))
    probabilities = [module.drop_prob for module in network.modules() if isinstance(module, DropPath)]
    assert probabilities == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25, 0.3])


@pytest.mark.parametrize(("dropout", "drop_path"), [(0.5, 0.0), (0.0, 0.5)])
def test_what_is_left_out_at_random_is_so_in_training_alone(dropout: float, drop_path: float) -> None:
    network = SmallCnn(1, 28, 10, Stages(width=4, drop_path=drop_path), dropout=dropout)
    pictures = torch.randn(8, 1, 28, 28)
    assert not torch.equal(network(pictures), network(pictures))
    network.eval()
    assert torch.equal(network(pictures), network(pictures))


def test_it_learns_what_is_where_in_a_picture() -> None:
    """Bars, level or upright, in random places: a mean alone cannot tell them apart."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 2
    pictures = 0.3 * torch.randn(64, 1, 28, 28, generator=draw)
    for picture, label, at in zip(pictures, labels, torch.randint(28, (64,), generator=draw), strict=True):
        (picture[0, at] if label else picture[0, :, at]).add_(2)
    torch.manual_seed(0)
    network = SmallCnn(1, 28, 2, Stages(width=8))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(25):
        optimizer.zero_grad()
        F.cross_entropy(network(pictures), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (network(pictures).argmax(dim=1) == labels).float().mean() > 0.95
