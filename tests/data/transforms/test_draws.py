"""Random numbers that belong to a sample."""

from __future__ import annotations

import numpy as np
import pytest

from boxcrew.data.transforms.draws import draws, sample_draws

INDICES = np.arange(20_000)


def test_numbers_are_uniform() -> None:
    numbers = draws(0, 0, INDICES, 8)
    assert numbers.shape == (20_000, 8)
    assert numbers.dtype == np.float64
    assert numbers.min() >= 0
    assert numbers.max() < 1
    for column in numbers.T:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi square of 19 degrees: 1 in 1,500 is more
    # The last bits too, not only the first.
    assert np.abs(np.histogram(numbers * 2**40 % 1, bins=10, range=(0, 1))[0] / 16_000 - 1).max() < 0.03


def test_all_are_different() -> None:
    numbers = [draws(seed, epoch, INDICES[:500], 5) for seed in range(3) for epoch in range(3)]
    assert len(np.unique(numbers)) == 9 * 500 * 5


@pytest.mark.parametrize("lag", [1, 2, 16])
def test_neighbors_have_nothing_to_do_with_each_other(lag: int) -> None:
    """Samples, epochs, seeds, streams and numbers of one sample that are next to each other."""
    start = draws(7, 3, INDICES, 20)
    others = [
        draws(7, 3, INDICES + lag, 20),
        draws(7, 3 + lag, INDICES, 20),
        draws(7 + lag, 3, INDICES, 20),
        draws(7, 3, INDICES, 20, stream=lag),
        np.roll(start, lag, axis=1),
    ]
    for other in others:
        assert abs(np.corrcoef(start[:, 0], other[:, 0])[0, 1]) < 4 / np.sqrt(20_000)
        # Nor does one say whether the other is large, at either end.
        both = (start[:, 0] < 0.5) & (other[:, 0] < 0.5)
        assert both.mean() == pytest.approx(0.25, abs=0.015)


def test_a_sample_has_its_numbers_in_whatever_batch() -> None:
    whole = draws(1, 2, INDICES[:50], 6)
    chosen = np.array([40, 3, 17])
    assert (draws(1, 2, chosen, 6) == whole[chosen]).all()
    assert (draws(1, 2, chosen[:1], 6) == whole[40]).all()
    assert (draws(1, 2, chosen, 2) == whole[chosen, :2]).all()
    assert draws(1, 2, chosen[:0], 6).shape == (0, 6)


def test_a_batch_may_begin_a_new_epoch() -> None:
    indices, epochs = np.array([8, 9, 0, 1]), np.array([4, 4, 5, 5])
    numbers = draws(1, epochs, indices, 3)
    assert (numbers[:2] == draws(1, 4, indices[:2], 3)).all()
    assert (numbers[2:] == draws(1, 5, indices[2:], 3)).all()


@pytest.mark.parametrize("seed", [0, 2**31, 2**63, 2**64 - 1])
def test_any_seed_will_do(seed: int) -> None:
    assert 0.4 < draws(seed, 0, INDICES[:1000], 1).mean() < 0.6


def slowly(seed: int, epoch: int, index: int, num: int, stream: int) -> list[float]:
    """One sample, in whole numbers."""
    words = (1 << 64) - 1

    def scramble(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & words
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & words
        return word ^ (word >> 31)

    state, step = 0, 0x9E3779B97F4A7C15
    for part in (seed, stream, epoch, index):
        state = scramble((state + step + part) & words)
    return [(scramble((state + step * i) & words) >> 11) / 2**53 for i in range(1, num + 1)]


@pytest.mark.parametrize("place", [(0, 0, 0), (1, 2, 3), (2**63 + 5, 10**6, 2**40)])
def test_numbers_are_always_the_same(place: tuple[int, int, int]) -> None:
    """Runs that are resumed elsewhere go on with the same pictures: the numbers may never change."""
    seed, epoch, index = place
    numbers = draws(seed, epoch, np.array([index]), 4, stream=6)
    assert numbers[0].tolist() == slowly(seed, epoch, index, 4, 6)


def test_known_numbers() -> None:
    numbers = draws(1, 2, np.array([3]), 2, stream=4)
    assert numbers.tolist() == [[0.43440830997593327, 0.8839984046854742]]


def test_the_draw_of_a_sample_depends_on_seed_epoch_and_index_alone() -> None:
    indices, epochs = np.array([3, 9, 3, 4]), np.array([0, 0, 1, 1])
    together = sample_draws(5, epochs, indices)
    alone = [int(sample_draws(5, epochs[i : i + 1], indices[i : i + 1])[0]) for i in range(4)]
    assert together.tolist() == alone
    assert together.dtype == np.int64
    every = [sample_draws(seed, np.full(500, epoch), INDICES[:500]) for seed in (0, 1) for epoch in (0, 1)]
    assert len(np.unique(every)) == 2000
    assert np.min(every) >= 0
    assert np.mean(np.array(every) >= 2**62) == pytest.approx(0.5, abs=0.05)


def test_known_draw_of_a_sample() -> None:
    """Runs that are resumed elsewhere choose the same: the numbers may never change."""
    assert sample_draws(1, np.array([2]), np.array([3])).tolist() == [5334706515621654382]
