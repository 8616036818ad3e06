"""Tables are read like single lines, and only real tables are accepted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxcrew.data.detection.annotations import Object
from boxcrew.data.detection.yolo_labels import read_tables

NUMBERS = st.floats(-2, 2).map(repr) | st.sampled_from(["0", "1e-3", "+.5", "7.", "1E0"])
LINES = st.tuples(st.integers(0, 9).map(str), NUMBERS, NUMBERS, NUMBERS, NUMBERS)


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a machine that is busy
@given(files=st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=5))
def test_numbers_are_those_of_python(files: list[list[tuple[str, ...]]]) -> None:
    texts = ["\n".join(map(" ".join, lines)).encode() for lines in files]
    for lines, table in zip(files, read_tables(texts, 10).tables, strict=True):
        assert table is not None
        assert len(table) == len(lines)
        for number, (line, object_) in enumerate(zip(lines, table, strict=True), 1):
            label, x, y, width, height = map(float, line)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            assert object_ == Object(at=f"line {number}", box=box, label=int(label))


GOOD = b"1 .5 .5 .1 .1\n2 .5 .5 .2 .2\n"


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\n", b"\n\n", b"1 .5 .5 .1\n", b"1 .5 .5 .1 .1 .1 .1\n", b"1 .5 .5 .1\n1 .5 .5 .1 .1 .1\n",
        b"1  .5 .5 .1 .1\n", b" 1 .5 .5 .1 .1\n", b"1 .5 .5 .1 .1 \n", b"1 .5 .5 .1 .1\n\n",
        b"1 .5 .5 nan .1\n",
        b"1 .5 .5 .1 .1,\n", b"1 .5 .5 1.2.3 .1\n", b"\xef\xbb\xbf1 .5 .5 .1 .1\n", b"1 .5 .5 .1 \xff\n",
        b"10 .5 .5 .1 .1\n", b"-1 .5 .5 .1 .1\n", b"1.5 .5 .5 .1 .1\n", b"1 .5 .5\n.1 .1\n",
        b"1 .5 .5 .1 .1\r1 .5 .5 .1 .1\n", b"1e400 .5 .5 .1 .1\n",
        b"1 .5 .5 .1 .1 1.5\n", b"1 .5 .5 .1 .1 -.5\n", b"1 .5 .5 .1 .1\n1 .5 .5 .1 .1 .5\n",
        b"1 .5 .5 .1 .1 .5\n1 .5 .5 .1 .1\n", b"1 .5 .5 .1 .1 .5\n10 .5 .5 .1 .1 .5\n",
    ],
)  # fmt: skip
def test_other_files_are_left_aside_and_spoil_no_neighbor(text: bytes) -> None:
    first, middle, last = read_tables([GOOD, text, GOOD], 10).tables
    assert middle is None
    for table in (first, last):
        assert table is not None
        assert table.labels.tolist() == [1, 2]
        np.testing.assert_allclose(table.boxes[1], [0.4, 0.4, 0.6, 0.6])


def test_line_ends_of_other_systems_and_a_missing_last_one() -> None:
    tables = read_tables([GOOD.replace(b"\n", b"\r\n"), GOOD.rstrip(), GOOD.replace(b" ", b"\t")], 10).tables
    assert [table and table.labels.tolist() for table in tables] == [[1, 2]] * 3


def test_no_files() -> None:
    assert read_tables([], 10) == ([], 0)
    assert read_tables([b""], 10) == ([None], 0)


def test_a_sixth_column_is_a_confidence() -> None:
    tables, num_confidences = read_tables([GOOD, b"1 .5 .5 .1 .1 .9\n2 .5 .5 .2 .2 1\n", GOOD], 10)
    plain, scored, _ = tables
    assert num_confidences == 2
    assert plain is not None
    assert scored is not None
    assert scored.labels.tolist() == plain.labels.tolist()
    np.testing.assert_array_equal(scored.boxes, plain.boxes)
