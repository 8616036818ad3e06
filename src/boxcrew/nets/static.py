"""Non-maximum suppression and sampling with outputs of a fixed size, whatever the data.

Detectors must run on tensors without data, so that planning can count their memory, and must choose the same
anchors and regions for an image however a step is split. So every function here returns a fixed count of
indices with a mask, and every random choice comes from the sample's own draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

_LARGEST = torch.iinfo(torch.int64).max
_STEPS = 4096  # of a score before the sigmoid: two in the same step are equal; as in `runtime.choice`
_LOWEST, _HIGHEST = 2.0**-20, 1 - 2.0**-13  # probabilities: beyond these, differences are rounding
# Constants of splitmix64 (Steele, Lea and Flood 2014, figure 19), as signed numbers.
_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)), (31, 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Some of N candidates in each of B rows; where fewer than K were to be had, the mask says so."""

    index: Tensor  # (B, K) int64, 0..N-1; 0 where not valid
    valid: Tensor  # (B, K) bool, all true entries before all false ones

    def gather(self, values: Tensor) -> Tensor:
        """Return the chosen rows (B, K, …) of `values` (B, N, …), zero where not valid."""
        one_each = (*self.index.shape, *(1 for _ in values.shape[2:]))
        index = self.index.reshape(one_each).expand(*self.index.shape, *values.shape[2:])
        return values.gather(1, index).masked_fill(~self.valid.reshape(one_each), 0)

    def reordered(self, order: Tensor) -> Chosen:
        """Return the same in another order (B, K)."""
        return Chosen(index=self.index.gather(1, order), valid=self.valid.gather(1, order))


def hashed_keys(draws: Tensor, num: int) -> Tensor:
    """Return (B, num) int64 keys of at least 0 that depend on the draw of each row and the column alone.

    `draws` (B,) int64 has one integer for each sample. The keys of a sample are the same alone, in any batch
    and on any device: integers do not round. For a second, independent choice give `draws + 1`, and so on.
    """
    keys = draws[:, None] + torch.arange(1, num + 1, device=draws.device) * _GAMMA
    for shift, factor in _MIX:
        shifted = (keys >> shift) & (_LARGEST >> (shift - 1))  # without the sign that >> fills in
        keys = (keys ^ shifted) * factor
    return keys & _LARGEST


def smallest_keys(keys: Tensor, candidates: Tensor, *, count: int) -> Chosen:
    """Choose the candidates (B, N) with the `count` smallest keys (B, N) of each row, smallest first."""
    num = keys.shape[1]
    ranked, index = keys.masked_fill(~candidates, _LARGEST).topk(min(count, num), dim=1, largest=False)
    missing = (0, max(0, count - num))
    valid = F.pad((ranked < _LARGEST) & candidates.gather(1, index), missing)
    return Chosen(index=F.pad(index, missing).masked_fill(~valid, 0), valid=valid)


def sample_balanced(
    positive: Tensor, negative: Tensor, keys: Tensor, *, count: int, max_positive: int
) -> Tensor:
    """Return a mask (B, N) of `count` candidates to learn from, those with the smallest keys (B, N): at most
    `max_positive` of the positive ones, filled up with negative ones; fewer where there are too few.

    The key of a candidate must be that of its own number (an anchor's, not a place in a sorted or padded
    list), or the choice changes with the rounding of scores and with the batch.
    """
    chosen_positive = positive & (_ranks(keys, positive) < max_positive)
    room = count - chosen_positive.sum(dim=1, keepdim=True)
    return chosen_positive | (negative & (_ranks(keys, negative) < room))


def indices_of(mask: Tensor, *, count: int) -> Chosen:
    """Return the first `count` true columns of each row of a mask (B, N), in ascending order."""
    columns = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return smallest_keys(columns, mask, count=count)


def _ranks(keys: Tensor, candidates: Tensor) -> Tensor:
    """Return (B, N) the place of each candidate by its key, from 0; others come after all candidates."""
    order = keys.masked_fill(~candidates, _LARGEST).argsort(dim=1, stable=True)
    places = torch.arange(keys.shape[1], device=keys.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places)


def score_ranks(scores: Tensor) -> Tensor:
    """Return ranks int64 of probabilities, the higher the better, of the same shape. Nearly equal ones have
    the same rank: where an image is flat, neighbors have the same score up to its last digits, and which of
    them is best would depend on who computes it.
    """
    return logit_ranks(scores.detach().clamp(_LOWEST, _HIGHEST).logit())


def logit_ranks(logits: Tensor) -> Tensor:
    """Return the ranks of scores before the sigmoid, as `score_ranks` does."""
    return (logits.detach() * _STEPS).round().long()


def top_ranked(ranks: Tensor, *, count: int) -> Tensor:
    """Return the index (B, K, …) along the second axis of the `count` highest ranks (B, N, …), highest first;
    all of them if there are fewer. Of equal ranks the first is taken first.
    """
    num = ranks.shape[1]
    last_first = torch.arange(num - 1, -1, -1, device=ranks.device)
    keys = ranks * num + last_first.reshape(-1, *(1 for _ in ranks.shape[2:]))
    return keys.topk(min(count, num), dim=1).indices


def nms_top_k(
    boxes: Tensor, ranks: Tensor, groups: Tensor, valid: Tensor, *, num_groups: int, iou: float, count: int
) -> Chosen:
    """Suppress boxes (B, N, 4) xyxy that overlap a better one of their group by more than `iou`, and choose
    the `count` best of each row that are left, best first.

    `ranks` (B, N) int64, of which the highest is best, and the first of equal ones, `groups` (B, N) int64
    from 0 to `num_groups` - 1 (classes or levels) and `valid` (B, N) belong to the boxes. No gradient flows
    through the choice.
    """
    index, kept = _nms(boxes.detach(), ranks, groups, valid, num_groups, iou, count)
    return Chosen(index=index, valid=kept)


@torch.library.custom_op("boxcrew::nms_top_k", mutates_args=())
def _nms(
    boxes: Tensor, ranks: Tensor, groups: Tensor, valid: Tensor, num_groups: int, iou: float, count: int
) -> tuple[Tensor, Tensor]:
    """One operator, because what is inside has shapes that depend on data, and must not be traced. Exports
    give it another form (`export/operators.py`), which needs `num_groups`.
    """
    from torchvision.ops import batched_nms

    del num_groups

    index = torch.zeros(len(boxes), count, dtype=torch.int64, device=boxes.device)
    kept = torch.zeros(len(boxes), count, dtype=torch.bool, device=boxes.device)
    for row in range(len(boxes)):
        candidates = valid[row].nonzero().squeeze(1)
        candidates = candidates[ranks[row, candidates].argsort(descending=True, stable=True)]
        places = torch.arange(len(candidates), 0, -1, dtype=torch.float64, device=boxes.device)
        # In double precision: torchvision moves the boxes of each group to a place of their own, which would
        # round them, and overlaps near the limit would then differ from those of exported files.
        best = batched_nms(boxes[row, candidates].double(), places, groups[row, candidates], iou)[:count]
        index[row, : len(best)] = candidates[best]
        kept[row, : len(best)] = True
    return index, kept


@_nms.register_fake
def _nms_shapes(
    boxes: Tensor, ranks: Tensor, groups: Tensor, valid: Tensor, num_groups: int, iou: float, count: int
) -> tuple[Tensor, Tensor]:
    """Give the shapes alone, for tensors without data."""
    del ranks, groups, valid, num_groups, iou
    index = boxes.new_zeros((boxes.shape[0], count), dtype=torch.int64)
    return index, torch.zeros_like(index, dtype=torch.bool)
