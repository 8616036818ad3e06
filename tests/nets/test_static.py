"""Choices of a fixed size: the same for any split, right on tensors without data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.ops import batched_nms

from boxcrew.core.torch_tools.fake import fake_tensors
from boxcrew.nets.static import (
    hashed_keys,
    indices_of,
    logit_ranks,
    nms_top_k,
    sample_balanced,
    score_ranks,
    smallest_keys,
    top_ranked,
)

DRAWS = torch.tensor([0, 7, -3, 2**62, 7])


def splitmix64(state: int) -> int:
    """The reference in Python's whole numbers."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def random_masks(shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    random = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    return random < 0.1, random > 0.3


def test_keys_are_those_of_splitmix64() -> None:
    keys = hashed_keys(DRAWS, 3)
    gamma = 0x9E3779B97F4A7C15
    for draw, row in zip(DRAWS.tolist(), keys.tolist(), strict=True):
        states = [(draw + column * gamma) % (1 << 64) for column in range(3)]
        assert row == [splitmix64(state) & ((1 << 63) - 1) for state in states]


def test_keys_of_a_sample_are_the_same_alone_and_in_a_batch() -> None:
    together = hashed_keys(DRAWS, 1000)
    alone = torch.cat([hashed_keys(draw[None], 1000) for draw in DRAWS])
    assert torch.equal(together, alone)
    assert torch.equal(together[1], together[4])
    assert torch.equal(together[:, :10], hashed_keys(DRAWS, 10))
    assert len({*together[:4].flatten().tolist()}) == 4000


def test_keys_are_evenly_spread() -> None:
    keys = hashed_keys(torch.arange(50), 2000).double() / 2**63
    counts = torch.histc(keys, bins=20, min=0, max=1)
    assert (counts / counts.sum() - 0.05).abs().max() < 0.003


@pytest.mark.parametrize("count", [0, 1, 5, 12, 20])
def test_smallest_keys(count: int) -> None:
    keys = hashed_keys(DRAWS, 12)
    candidates, _ = random_masks((5, 12))
    candidates[2] = False
    chosen = smallest_keys(keys, candidates, count=count)
    assert chosen.index.shape == chosen.valid.shape == (5, count)
    for row in range(5):
        ranked = keys[row].argsort().tolist()
        wanted = [column for column in ranked if candidates[row, column]]
        assert chosen.index[row][chosen.valid[row]].tolist() == wanted[:count]
        assert chosen.valid[row].tolist() == sorted(chosen.valid[row].tolist(), reverse=True)
    assert (chosen.index[~chosen.valid] == 0).all()


def test_no_candidates_at_all() -> None:
    chosen = smallest_keys(hashed_keys(DRAWS, 0), torch.zeros(5, 0, dtype=torch.bool), count=4)
    assert chosen.index.shape == (5, 4)
    assert not chosen.valid.any()


def test_the_key_of_a_candidate_may_be_the_largest() -> None:
    keys = torch.full((1, 3), torch.iinfo(torch.int64).max - 1)
    chosen = smallest_keys(keys, torch.tensor([[False, True, False]]), count=2)
    assert chosen.index.tolist() == [[1, 0]]
    assert chosen.valid.tolist() == [[True, False]]


def test_gathering_what_was_chosen() -> None:
    values = torch.arange(2 * 4 * 3.0).reshape(2, 4, 3) + 1
    chosen = indices_of(torch.tensor([[False, True, False, True], [False] * 4]), count=3)
    assert chosen.index.tolist() == [[1, 3, 0], [0, 0, 0]]
    gathered = chosen.gather(values)
    assert torch.equal(gathered[0, :2], values[0, [1, 3]])
    assert (gathered[0, 2] == 0).all()
    assert (gathered[1] == 0).all()
    assert chosen.gather(values[..., 0]).shape == (2, 3)


def test_a_balanced_sample_has_its_numbers() -> None:
    positive, negative = random_masks((5, 400))
    negative &= ~positive
    positive[3], negative[4] = False, False
    chosen = sample_balanced(positive, negative, hashed_keys(DRAWS, 400), count=64, max_positive=16)
    assert (chosen & ~positive & ~negative).sum() == 0
    assert (chosen & positive).sum(1).tolist() == [16, 16, 16, 0, 16]
    assert chosen.sum(1).tolist() == [64, 64, 64, 64, 16]


def test_a_balanced_sample_is_the_same_alone_and_in_a_batch() -> None:
    positive, negative = random_masks((5, 400))
    together = sample_balanced(
        positive, negative & ~positive, hashed_keys(DRAWS, 400), count=64, max_positive=16
    )
    for row in range(5):
        part = slice(row, row + 1)
        alone = sample_balanced(
            positive[part],
            (negative & ~positive)[part],
            hashed_keys(DRAWS[part], 400),
            count=64,
            max_positive=16,
        )
        assert torch.equal(alone[0], together[row])


def test_another_draw_is_another_sample() -> None:
    positive, negative = random_masks((1, 400))
    first, second = (
        sample_balanced(positive, negative & ~positive, hashed_keys(draw, 400), count=64, max_positive=16)
        for draw in (torch.tensor([1]), torch.tensor([2]))
    )
    assert not torch.equal(first, second)


def boxes_and_scores() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 60, (3, 40, 2))
    boxes = torch.tensor(np.concatenate((corner, corner + rng.uniform(5, 40, (3, 40, 2))), axis=-1))
    return (
        boxes.float(),
        torch.tensor(rng.uniform(0, 1, (3, 40))).float(),
        torch.tensor(rng.integers(0, 2, (3, 40))),
        torch.tensor(rng.uniform(0, 1, (3, 40)) < 0.8),
    )


@pytest.mark.parametrize("count", [3, 100])
def test_suppression_is_that_of_torchvision(count: int) -> None:
    boxes, scores, groups, valid = boxes_and_scores()
    ranks = scores.argsort(dim=1).argsort(dim=1)
    chosen = nms_top_k(boxes, ranks, groups, valid, num_groups=2, iou=0.5, count=count)
    assert chosen.index.shape == (3, count)
    for row in range(3):
        real = valid[row].nonzero().squeeze(1)
        wanted = real[batched_nms(boxes[row, real], scores[row, real], groups[row, real], 0.5)][:count]
        assert chosen.index[row][chosen.valid[row]].tolist() == wanted.tolist()


def test_scores_that_differ_by_rounding_have_the_same_rank() -> None:
    scores = torch.tensor([0.02, 0.5, 0.9, 1.0, 0.0])
    assert torch.equal(score_ranks(scores), score_ranks(scores * (1 - 1e-6)))
    assert score_ranks(scores).argsort().tolist() == [4, 0, 1, 2, 3]
    assert score_ranks(torch.tensor([0.5, 0.50001, 0.5005])).tolist() == [0, 0, 8]
    logits = torch.linspace(-8, 8, 30)
    assert (score_ranks(logits.sigmoid()) - logit_ranks(logits)).abs().max() <= 1


def test_of_equal_ranks_the_first_is_taken() -> None:
    ranks = torch.tensor([[3, 7, 3, 7, -1], [2, 2, 2, 2, 2]])
    assert top_ranked(ranks, count=4).tolist() == [[1, 3, 0, 2], [0, 1, 2, 3]]
    by_class = torch.stack((ranks, -ranks), dim=2)
    assert top_ranked(by_class, count=9)[0].T.tolist() == [[1, 3, 0, 2, 4], [4, 0, 2, 1, 3]]
    same, groups = torch.tensor([0.0, 0.0, 8.0, 8.0]).expand(1, 6, 4), torch.zeros(1, 6, dtype=torch.int64)
    chosen = nms_top_k(same, groups + 9, groups, groups == 0, num_groups=1, iou=0.5, count=2)
    assert chosen.index[chosen.valid].tolist() == [0]


def test_suppression_passes_no_gradient_and_changes_nothing() -> None:
    boxes, scores, groups, valid = boxes_and_scores()
    before = boxes.clone(), scores.clone()
    ranks = score_ranks(scores.requires_grad_())
    chosen = nms_top_k(boxes.requires_grad_(), ranks, groups, valid, num_groups=2, iou=0.5, count=5)
    chosen.gather(boxes).sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is None
    assert boxes.grad is not None
    assert (boxes.grad != 0).any(dim=-1).sum(dim=1).tolist() == [5, 5, 5]
    assert torch.equal(boxes, before[0])
    assert torch.equal(scores, before[1])


def step(device: str) -> list[Tensor]:
    """Every function here, on tensors of one device."""
    boxes = torch.rand(2, 50, 4, device=device)
    scores = torch.rand(2, 50, device=device)
    draws = torch.zeros(2, dtype=torch.int64, device=device)
    mask = scores > 0.5
    sampled = sample_balanced(mask, ~mask, hashed_keys(draws, 50), count=8, max_positive=4)
    ranks, groups = score_ranks(scores), draws[:, None].expand(2, 50)
    suppressed = nms_top_k(boxes, ranks, groups, mask, num_groups=1, iou=0.5, count=70)
    chosen = indices_of(sampled, count=8)
    return [sampled, chosen.gather(boxes), suppressed.index, suppressed.valid, suppressed.gather(scores)]


SHAPES = [(2, 50), (2, 8, 4), (2, 70), (2, 70), (2, 70)]


def test_tensors_without_data_have_the_same_shapes() -> None:
    assert [tensor.shape for tensor in step("cpu")] == SHAPES
    assert [tensor.shape for tensor in step("meta")] == SHAPES


def test_on_an_accelerator_nothing_comes_to_the_host() -> None:
    """Fake tensors on `cuda` refuse mixed devices and `.item()`, and need no GPU."""
    with fake_tensors():
        assert [(tensor.shape, tensor.device.type) for tensor in step("cuda")] == [
            (shape, "cuda") for shape in SHAPES
        ]
