from __future__ import annotations

import pickle

import numpy as np
import pytest

from boxcrew.data.images import cache as image_cache
from boxcrew.data.images.cache import SampleCache
from boxcrew.data.loading.workers import Workers, fetch_all

# The tests are about what is kept, not speed.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def sample(value: int) -> np.ndarray:
    return np.full((1, 2, 3, 1), value, dtype=np.uint8)


def test_what_was_put_is_there() -> None:
    cache = SampleCache((2, 3, 1), 4)
    cache.put(1, np.concatenate([sample(7), sample(8)]))
    indices = np.array([2, 0, 1, 3, 9])
    assert cache.has(indices).tolist() == [True, False, True, False, False]
    assert cache.get(np.array([2, 1]))[:, 0, 0, 0].tolist() == [8, 7]


def test_what_has_no_room_is_not_kept() -> None:
    cache = SampleCache((2, 3, 1), 2)
    cache.put(1, np.concatenate([sample(1), sample(2)]))
    cache.put(5, sample(5))
    assert cache.has(np.arange(6)).tolist() == [False, True, False, False, False, False]
    empty = SampleCache((2, 3, 1), 0)
    empty.put(0, sample(1))
    assert not empty.has(np.arange(2)).any()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_processes_share_what_any_of_them_has_put(num_workers: int) -> None:
    cache = SampleCache((2, 3, 1), 6)

    def put(index: int) -> int:
        cache.put(index, sample(10 + index))
        return index

    assert list(fetch_all(put, list(range(5)), Workers(num=num_workers, prefetch=1))) == list(range(5))
    assert cache.has(np.arange(6)).tolist() == [True] * 5 + [False]
    assert cache.get(np.arange(5))[:, 1, 2, 0].tolist() == [10, 11, 12, 13, 14]


def test_a_lock_that_is_never_given_back_holds_up_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SampleCache((2, 3, 1), 2)
    cache.put(0, sample(1))
    monkeypatch.setattr(image_cache, "LOCK_SECONDS", 0.01)
    with cache._index.locked():
        assert not cache.has(np.array([0])).any()
        cache.put(1, sample(2))
    assert cache.has(np.arange(2)).tolist() == [True, False]


def test_a_process_that_is_not_forked_keeps_nothing() -> None:
    cache = SampleCache((2, 3, 1), 4)
    cache.put(0, np.ones((4, 2, 3, 1), dtype=np.uint8))
    sent = pickle.loads(pickle.dumps(cache))
    assert sent.count == 0
    assert not sent.has(np.arange(4)).any()
