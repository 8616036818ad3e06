"""Chunks come in order, with their results, whether computed in threads or not."""

from __future__ import annotations

import pytest

from boxcrew.data.checks.threads import map_chunks


@pytest.mark.parametrize("quick_seconds", [None, 0.0, 10.0])
@pytest.mark.parametrize("num_items", [0, 1, 7])
def test_chunks_are_in_order(num_items: int, quick_seconds: float | None) -> None:
    items = list(range(num_items))
    chunks = list(map_chunks(str, items, workers=3, chunk_size=2, quick_seconds=quick_seconds))
    assert [item for chunk, _ in chunks for item in chunk] == items
    assert [result for _, results in chunks for result in results] == [str(item) for item in items]
    assert [len(chunk) for chunk, _ in chunks] == [2] * (num_items // 2) + [1] * (num_items % 2)


def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_chunks(lambda item: 1 // item, [1, 0], workers=2, chunk_size=1))
