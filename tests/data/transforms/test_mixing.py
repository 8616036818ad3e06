from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from boxcrew.data.transforms.mixing import cutmix, mixup

BOTH: list[Any] = [mixup, cutmix]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pictures(num: int = 16, channels: int = 3) -> Tensor:
    """As they are collated: channels-last."""
    pixels = rng(5).integers(0, 256, (num, 12, 10, channels), dtype=np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


@pytest.mark.parametrize("mix", BOTH)
@pytest.mark.parametrize("inputs", [pictures(), pictures().float() / 255, torch.randn(16, 7)])
def test_inputs_keep_their_kind_and_are_not_changed(mix: Callable[..., Any], inputs: Tensor) -> None:
    labels, before = torch.arange(16), inputs.clone()
    mixed, targets = mix(inputs, labels, alpha=1.0, rng=rng())
    assert mixed.dtype == inputs.dtype
    assert mixed.shape == inputs.shape
    assert mixed.stride() == inputs.stride()
    assert torch.equal(inputs, before)
    assert not torch.equal(mixed, inputs)
    assert torch.equal(targets["labels"], labels)
    assert targets["mix_weights"].dtype == torch.float32
    assert {len(value) for value in targets.values()} == {16}


@pytest.mark.parametrize("mix", BOTH)
def test_partners_are_others_of_the_batch_each_once(mix: Callable[..., Any]) -> None:
    for seed in range(20):
        _, targets = mix(pictures(), torch.arange(16), alpha=1.0, rng=rng(seed))
        assert sorted(targets["other_labels"].tolist()) == list(range(16))
        assert (targets["other_labels"] != targets["labels"]).all()


@pytest.mark.parametrize("mix", BOTH)
def test_a_batch_of_one_stays_as_it_is(mix: Callable[..., Any]) -> None:
    mixed, targets = mix(pictures(1), torch.tensor([4]), alpha=1.0, rng=rng())
    assert torch.equal(mixed, pictures(1))
    assert targets["other_labels"].tolist() == [4]


@pytest.mark.parametrize("mix", BOTH)
def test_the_generator_alone_decides(mix: Callable[..., Any]) -> None:
    mixtures = [mix(pictures(), torch.arange(16), alpha=1.0, rng=rng(seed))[0] for seed in (1, 1, 2)]
    assert torch.equal(mixtures[0], mixtures[1])
    assert not torch.equal(mixtures[0], mixtures[2])


def test_mixup_is_a_mean_by_shares() -> None:
    inputs = torch.randn(16, 7)
    mixed, targets = mixup(inputs, torch.arange(16), alpha=1.0, rng=rng())
    share = targets["mix_weights"][:, None]
    torch.testing.assert_close(mixed, share * inputs + (1 - share) * inputs[targets["other_labels"]])


def test_pixels_are_mixed_to_the_nearest_level() -> None:
    inputs = pictures()
    mixed, targets = mixup(inputs, torch.arange(16), alpha=1.0, rng=rng())
    share = targets["mix_weights"].double().reshape(-1, 1, 1, 1)
    exact = share * inputs.double() + (1 - share) * inputs[targets["other_labels"]].double()
    assert (mixed.double() - exact).abs().max() <= 0.5 + 1e-4


@pytest.mark.parametrize(("alpha", "variance"), [(0.2, 1 / 5.6), (1.0, 1 / 12), (8.0, 1 / 68)])
def test_shares_are_of_a_beta_distribution(alpha: float, variance: float) -> None:
    _, targets = mixup(torch.zeros(20_000, 1), torch.zeros(20_000), alpha=alpha, rng=rng())
    assert float(targets["mix_weights"].mean()) == pytest.approx(0.5, abs=0.01)
    assert float(targets["mix_weights"].var()) == pytest.approx(variance, rel=0.05)


def test_cutmix_replaces_a_rectangle_and_its_share_is_exact() -> None:
    inputs = torch.arange(64, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 2, 12, 10).clone()
    mixed, targets = cutmix(inputs, torch.arange(64), alpha=1.0, rng=rng())
    for i in range(64):
        own = mixed[i] == i
        assert torch.equal(own[0], own[1])  # all channels alike
        assert (mixed[i][~own] == targets["other_labels"][i]).all()
        assert float(targets["mix_weights"][i]) == pytest.approx(float(own.float().mean()), abs=1e-6)
        rows, columns = (~own[0]).any(dim=1), (~own[0]).any(dim=0)
        assert torch.equal(~own[0], rows[:, None] & columns)
        assert (rows.int().diff().abs().sum() <= 2) & (columns.int().diff().abs().sum() <= 2)


def test_cutmix_cuts_everywhere_and_about_half() -> None:
    inputs = torch.zeros(4000, 1, 12, 10)
    inputs[::2] = 1
    mixed, targets = cutmix(inputs, torch.arange(4000), alpha=1.0, rng=rng())
    changed = (mixed != inputs).float().mean(dim=0)[0]
    torch.testing.assert_close(changed, changed.flip(0, 1), atol=0.04, rtol=0)
    assert changed.min() > 0.05
    assert 0.5 < float(targets["mix_weights"].mean()) < 0.7  # edges cut some of it off


def test_cutmix_of_numbers_takes_some_of_them() -> None:
    inputs = torch.arange(200.0)[:, None].expand(-1, 50).clone()
    mixed, targets = cutmix(inputs, torch.arange(200), alpha=1.0, rng=rng())
    own = mixed == inputs
    torch.testing.assert_close(own.float().mean(dim=1), targets["mix_weights"])
    assert (mixed[~own] == targets["other_labels"][:, None].expand(-1, 50)[~own]).all()
    assert float(targets["mix_weights"].mean()) == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("mix", BOTH)
def test_parts_of_the_batch_are_what_they_were(mix: Callable[..., Any]) -> None:
    """What a part needs is all in it: its inputs and targets are rows of the whole."""
    mixed, targets = mix(pictures(), torch.arange(16), alpha=1.0, rng=rng())
    part = slice(5, 9)
    own, other = pictures()[part].float(), pictures()[targets["other_labels"][part]].float()
    low, high = torch.minimum(own, other), torch.maximum(own, other)
    assert ((mixed[part] >= low) & (mixed[part] <= high)).all()
