"""Durations, sizes and counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted, format_bytes, format_count, format_duration, parse_duration


@given(st.integers(0, 9), st.integers(0, 59), st.integers(1, 59))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int) -> None:
    wanted = hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == wanted
    assert parse_duration(f"{hours}h {minutes}m {seconds} s") == wanted
    assert parse_duration(str(wanted)) == wanted
    assert parse_duration(wanted) == wanted


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("2d", 172800), ("0.5", 0.5)])
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1h30", "15x", "-5s", "1e3", "nan", "inf", "five", "1h,2m", "0s"])
def test_what_is_no_duration_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert caught.value.message.startswith(f"{text}: ")


@pytest.mark.parametrize("number", [0, -1, -0.5])
def test_a_duration_is_above_zero(number: float) -> None:
    with pytest.raises(UsageError, match="above zero"):
        parse_duration(number)


@given(st.floats(1, 86400))
def test_a_duration_is_read_back_to_the_precision_shown(seconds: float) -> None:
    shown = parse_duration(format_duration(seconds))
    assert abs(shown - seconds) <= (0.051 if seconds < 10 else 0.51 if seconds < 3599.5 else 60)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0s"), (9, "9.0s"), (45.4, "45s"), (200, "3m20s"), (3599.8, "1h00m"), (7500, "2h05m")],
)
def test_durations_as_people_read_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_sizes_and_counts_as_people_read_them() -> None:
    assert [format_bytes(n) for n in (0, 812, 1536, 3.4 * 2**20, 23.4 * 2**30, 2**41)] == [
        "0 B",
        "812 B",
        "1.5 KiB",
        "3.4 MiB",
        "23.4 GiB",
        "2.0 TiB",
    ]
    assert [format_count(n) for n in (0, 812, 3400, 35.6e6, 2e9)] == ["0", "812", "3.4 k", "35.6 M", "2.0 G"]


def test_counts_with_their_noun() -> None:
    assert [counted(num, "core") for num in (0, 1, 2, 2.5)] == ["0 cores", "1 core", "2 cores", "2.5 cores"]
    assert counted(1234567, "row") == "1234567 rows"
