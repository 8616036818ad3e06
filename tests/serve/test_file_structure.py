"""The parts of files that are counted before they are decoded."""

from __future__ import annotations

from boxcrew.serve.file_structure import num_scans
from tests.helpers.bad_photos import many_scans, photo, png

SCAN = b"\xff\xda"


def test_each_scan_that_is_decoded_counts() -> None:
    progressive = photo(progressive=True)
    assert num_scans(progressive) == progressive.count(SCAN) > 2
    assert num_scans(many_scans(300)) > 300
    assert num_scans(png(4, 4, bytes(20))) == 0


def test_a_scan_of_all_colors_is_the_last() -> None:
    content = photo()
    scan = content.index(SCAN)
    repeated = content[:-2] + content[scan:-2] * 300 + content[-2:]
    assert num_scans(repeated) == 1
    of_one_color = bytearray(repeated)
    of_one_color[scan + 4] = 1
    assert num_scans(bytes(of_one_color)) == 301


def test_what_is_not_whole_is_counted_to_its_end() -> None:
    content = photo()
    for length in (2, 3, 5, content.index(SCAN), content.index(SCAN) + 2):
        assert num_scans(content[:length]) == content[:length].count(SCAN)
