"""The size of an input as users write it, and as it is for an image."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.input_size import MULTIPLE, InputSize

sides = st.lists(st.integers(64, 1024), min_size=1, max_size=4, unique=True).map(lambda s: tuple(sorted(s)))
sizes = st.builds(
    lambda sides, extra: InputSize(sides, None if extra is None else sides[-1] + extra),
    sides,
    st.none() | st.integers(0, 1024),
)
images = st.tuples(st.integers(1, 6000), st.integers(1, 6000))


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (320, InputSize((320,))),
        ("320", InputSize((320,))),
        ("384, 256,320", InputSize((256, 320, 384))),
        ([256, 320], InputSize((256, 320))),
        ("600:1000", InputSize((600,), 1000)),
        ("480,600:1000", InputSize((480, 600), 1000)),
        (InputSize((96,)), InputSize((96,))),
    ],
)
def test_what_users_write_is_read(written: object, size: InputSize) -> None:
    assert InputSize.parse(written) == size


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("huge", "must be a size such as 320"),
        ("300.5", "must be a size"),
        ("320x320", "must be a size"),
        ("600:", "must be a size"),
        ("", "must be a size"),
        (None, "must be a size"),
        (True, "must be a size"),
        (-320, "must be a size"),
        (63, "from 64 to 2048"),
        ("320,4096", "from 64 to 2048"),
        ("600:4000", "from 64 to 2048"),
        ("600:500", "not be smaller than the short side"),
    ],
)
def test_what_is_no_size_is_refused_with_a_reason(written: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        InputSize.parse(written)


@given(size=sizes)
def test_a_size_can_be_written_and_read_again(size: InputSize) -> None:
    assert InputSize.parse(size.plain()) == InputSize.parse(str(size)) == size
    assert isinstance(size.plain(), int) == (len(size.sides) == 1 and size.limit is None)


@given(size=sizes, image=images)
def test_a_canvas_has_room_for_its_image_and_no_more_than_it_may(
    size: InputSize, image: tuple[int, int]
) -> None:
    inner, canvas = size.scaled(image), size.canvas([image])
    if size.limit is None:
        assert inner == canvas == (size.sides[-1], size.sides[-1])
        return
    assert all(0 <= outside - inside < MULTIPLE for inside, outside in zip(inner, canvas, strict=True))
    assert all(side % MULTIPLE == 0 for side in canvas)
    assert max(inner) <= size.limit
    assert min(inner) <= size.sides[-1]
    assert max(inner) == size.limit or min(inner) == size.sides[-1]


def test_the_proportions_of_an_image_are_kept() -> None:
    size = InputSize((600,), 1000)
    assert size.scaled((640, 480)) == (800, 600)
    assert size.scaled((480, 640)) == (600, 800)
    assert size.scaled((2000, 500)) == (1000, 250)  # the limit decides
    assert size.canvas([(640, 480), (480, 640)]) == (800, 800)


def test_of_several_sizes_the_largest_is_evaluated() -> None:
    size = InputSize.parse("256,320:480")
    assert size.largest == InputSize((320,), 480)
    assert size.at(0) == InputSize((256,), 480)
    assert size.describe() == "256 or 320 px on the short side, 480 at most"
    with pytest.raises(AssertionError):
        _ = size.square
