from __future__ import annotations

from typing import Any

import numpy as np
import torch

from boxcrew.core.types import Sample, Target
from boxcrew.data.loading.collate import collate


def sample(key: str, target: Target, *, level: int = 0, **fields: Any) -> Sample:
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) + np.uint8(level)
    return Sample(image=image, target=target, key=key, **fields)


def test_targets_are_padded_to_the_largest() -> None:
    two = Target.of([[0, 0, 1, 1], [1, 1, 3, 3]], [4, 7], difficult=[False, True])
    batch = collate(
        [sample("a", two), sample("b", Target.of([], [])), sample("c", two.select(np.array([1])))]
    )
    assert batch.keys == ("a", "b", "c")
    assert batch.targets["labels"].tolist() == [[4, 7], [-1, -1], [7, -1]]
    assert batch.targets["boxes"].tolist()[0] == [[0, 0, 1, 1], [1, 1, 3, 3]]
    assert batch.targets["boxes"][1:].tolist() == [[[0] * 4, [0] * 4], [[1, 1, 3, 3], [0] * 4]]
    assert batch.targets["difficult"].tolist() == [[False, True], [False, False], [True, False]]
    assert {name: value.dtype for name, value in batch.targets.items()} == {
        "boxes": torch.float32,
        "labels": torch.int64,
        "difficult": torch.bool,
    }


def test_images_are_stacked_channels_last_without_another_copy() -> None:
    samples = [sample("a", Target.of([], [])), sample("b", Target.of([], []), level=9)]
    inputs = collate(samples).inputs
    assert inputs.shape == (2, 3, 4, 6)
    assert inputs.dtype == torch.uint8
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    for row, each in enumerate(samples):
        assert (inputs[row].permute(1, 2, 0).numpy() == each.image).all()
        assert not np.shares_memory(inputs.numpy(), each.image)


def test_crowds_are_never_training_targets() -> None:
    target = Target.of([[0, 0, 1, 1], [1, 1, 3, 3]], [4, 7], crowd=[True, False])
    batch = collate([sample("a", target)])
    assert batch.targets["labels"].tolist() == [[7]]
    assert target.labels.tolist() == [4, 7]


def test_no_objects_at_all_leaves_room_for_one() -> None:
    batch = collate([sample("a", Target.of([], []))], skipped=["b.jpg: gone"])
    assert batch.targets["boxes"].shape == (1, 1, 4)
    assert batch.targets["labels"].tolist() == [[-1]]
    assert batch.skipped == ("b.jpg: gone",)


def test_draws_and_extra_inputs_come_along() -> None:
    none = Target.of([], [])
    regions = np.arange(12, dtype=np.float32).reshape(3, 4)
    samples = [
        sample("a", none, draw=2**62 + 1, extra={"regions": regions[:1], "valid": np.array([True])}),
        sample("b", none, draw=5, extra={"regions": regions, "valid": np.array([True, False, True])}),
        sample("c", none, extra={"regions": regions[:0], "valid": np.array([], dtype=np.bool_)}),
    ]
    batch = collate(samples)
    assert batch.draws.tolist() == [2**62 + 1, 5, 0]
    assert list(batch.extra) == ["regions", "valid"]
    assert batch.extra["valid"].tolist() == [[True, False, False], [True, False, True], [False] * 3]
    assert batch.extra["regions"].dtype == torch.float32
    assert torch.equal(batch.extra["regions"][1], torch.from_numpy(regions))
    assert batch.extra["regions"][0].tolist() == [[0, 1, 2, 3], [0] * 4, [0] * 4]
    assert collate(samples[2:]).extra["regions"].shape == (1, 1, 4)
    assert collate([sample("d", none)]).extra == {}
