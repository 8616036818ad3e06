"""Results come in order, whether computed in threads or not."""

from __future__ import annotations

import pytest

from boxcrew.data.checks.threads import map_in_threads


@pytest.mark.parametrize("quick_seconds", [None, 0.0, 10.0])
@pytest.mark.parametrize("num_items", [0, 1, 7])
def test_results_are_in_order(num_items: int, quick_seconds: float | None) -> None:
    items, calls = list(range(num_items)), list[tuple[int, int]]()
    results = map_in_threads(
        str,
        items,
        workers=3,
        chunk_size=2,
        quick_seconds=quick_seconds,
        progress=lambda *call: calls.append(call),
    )
    assert results == [str(item) for item in items]
    assert calls == [(min(end, num_items), num_items) for end in range(2, num_items + 2, 2)]


def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda item: 1 // item, [1, 0], workers=2, chunk_size=1)
