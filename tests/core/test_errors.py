"""What errors of other libraries say fits into a line of ours."""

from __future__ import annotations

import pytest

from boxcrew.core.errors import first_line


@pytest.mark.parametrize(
    ("text", "line"), [("a\nb", "a"), ("\n  a \n", "a"), ("", "ValueError"), (" \n", "ValueError")]
)
def test_the_first_line_that_says_something(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line
