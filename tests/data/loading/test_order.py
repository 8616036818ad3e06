from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import DataError
from boxcrew.data.loading.order import BLOCK_SHARDS, BalancedOrder, BlockOrder, SampleOrder, sample_rng


def pairs(order: SampleOrder, start: int, count: int) -> list[tuple[int, int]]:
    """(epoch, index) of the samples."""
    epochs, indices = order.samples(start, count)
    return list(zip(epochs.tolist(), indices.tolist(), strict=True))


@given(num_samples=st.integers(1, 40), batch=st.integers(1, 90), seed=st.integers(0, 2**40))
def test_batches_of_any_size_lose_and_repeat_nothing(num_samples: int, batch: int, seed: int) -> None:
    order = SampleOrder(num_samples, seed)
    num_steps = 3 * num_samples // batch + 3
    stream = [pair for step in range(num_steps) for pair in pairs(order, step * batch, batch)]
    assert len(stream) == num_steps * batch
    whole, rest = divmod(len(stream), num_samples)
    for epoch in range(whole):
        part = stream[epoch * num_samples : (epoch + 1) * num_samples]
        assert sorted(part) == [(epoch, index) for index in range(num_samples)]
    last = Counter(stream[whole * num_samples :])
    assert sum(last.values()) == rest
    assert all(count == 1 for count in last.values())


@given(start=st.integers(0, 500), count=st.integers(1, 100))
def test_a_slice_is_a_part_of_the_one_stream(start: int, count: int) -> None:
    whole = pairs(SampleOrder(17, seed=3), 0, 600)
    assert pairs(SampleOrder(17, seed=3), start, count) == whole[start : start + count]


@given(start=st.integers(0, 500), count=st.integers(1, 100))
def test_a_slice_of_a_balanced_order_is_a_part_of_the_one_stream(start: int, count: int) -> None:
    labels = np.array([0] * 16 + [1])
    whole = pairs(BalancedOrder(labels, seed=3), 0, 600)
    assert pairs(BalancedOrder(labels, seed=3), start, count) == whole[start : start + count]


def test_a_sample_that_comes_up_again_is_told_from_the_first_time() -> None:
    """Its augmentation is drawn from what is told here."""
    stream = pairs(BalancedOrder(np.array([0] * 99 + [1]), seed=0), 0, 300)
    rare = [pair for pair in stream if pair[1] == 99]
    assert len(rare) > 100
    assert len(set(stream)) == 300


def test_going_back_gives_the_same_again() -> None:
    order = SampleOrder(10, seed=1)
    first = pairs(order, 5, 30)
    pairs(order, 1000, 10)
    assert pairs(order, 5, 30) == first


def test_epochs_and_seeds_differ() -> None:
    orders = [tuple(SampleOrder(50, seed).epoch(epoch)) for seed in range(4) for epoch in range(4)]
    assert len(set(orders)) == 16


def test_a_sample_has_its_own_stream_apart_from_the_order() -> None:
    drawn = {
        sample_rng(seed, epoch, index).random() for seed in (0, 1) for epoch in (0, 1) for index in (0, 1)
    }
    assert len(drawn) == 8
    assert sample_rng(1, 2, 3).random() == sample_rng(1, 2, 3).random()
    orders = {tuple(SampleOrder(20, 0).epoch(epoch)) for epoch in range(3)}
    samples = {tuple(sample_rng(0, 0, index).permutation(20)) for index in range(3)}
    assert not orders & samples


def test_no_samples_is_an_error() -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        SampleOrder(0, seed=0)


def test_positions_far_away_are_found() -> None:
    assert len(np.unique([index for _, index in pairs(SampleOrder(7, 0), 7 * 10**12, 7)])) == 7


SHARDS = st.lists(st.integers(0, 40), min_size=1, max_size=200)


@given(shards=SHARDS, seed=st.integers(0, 2**40))
def test_an_epoch_in_blocks_is_every_sample_once(shards: list[int], seed: int) -> None:
    order = BlockOrder(np.array(shards), seed)
    epochs = [order.epoch(epoch).tolist() for epoch in range(3)]
    assert all(sorted(epoch) == list(range(len(shards))) for epoch in epochs)
    assert [order.epoch(epoch).tolist() for epoch in range(3)] == epochs


@given(start=st.integers(0, 500), count=st.integers(1, 100))
def test_a_slice_of_an_order_in_blocks_is_a_part_of_the_one_stream(start: int, count: int) -> None:
    shards = np.arange(17) // 2
    whole = pairs(BlockOrder(shards, seed=3), 0, 600)
    assert pairs(BlockOrder(shards, seed=3), start, count) == whole[start : start + count]


def test_a_block_mixes_a_few_shards_and_no_more() -> None:
    """The shards of a block, and the order in it, are others in each epoch."""
    shards = np.arange(4000) // 100
    order, blocks = BlockOrder(shards, seed=0), list[set[int]]()
    size = 100 * BLOCK_SHARDS
    for epoch in range(2):
        used = shards[order.epoch(epoch)]
        for start in range(0, 4000, size):
            block = used[start : start + size]
            blocks.append(set(block.tolist()))
            assert (np.diff(block) != 0).mean() > 0.7  # within the block, any follows any
    assert {len(block) for block in blocks} == {BLOCK_SHARDS}
    assert sorted(map(sorted, blocks[:5])) != sorted(map(sorted, blocks[5:]))
