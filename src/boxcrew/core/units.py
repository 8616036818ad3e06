"""Durations, sizes and counts as people write and read them."""

from __future__ import annotations

import re

from boxcrew.core.errors import UsageError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str | float) -> float:
    """Return the seconds of `90s`, `15m`, `2h`, `1h30m` or a plain number of seconds."""
    if isinstance(text, int | float) or re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    else:
        compact, term = text.replace(" ", ""), r"(\d+(?:\.\d+)?)([smhd])"
        if not re.fullmatch(f"({term})+", compact):
            raise UsageError(f"{text}: not a duration", advice="write it like 90s, 15m, 2h or 1h30m")
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(term, compact))
    if seconds <= 0:
        raise UsageError(f"{text}: a duration must be above zero")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration such as `45s`, `3m20s` or `2h05m`."""
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"


def counted(num: float, noun: str) -> str:
    """Return a number with its noun, such as `1 thread`, `2 threads` or `2.5 CPU cores`."""
    number = num if isinstance(num, int) else f"{num:g}"
    return f"{number} {noun}{'' if num == 1 else 's'}"


def format_bytes(count: float) -> str:
    """Return a size such as `812 B`, `3.4 MiB` or `23.4 GiB`."""
    return _scaled(count, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def format_count(count: float) -> str:
    """Return a count such as `812`, `3.4 k` or `35.6 M`."""
    return _scaled(count, 1000, ("", " k", " M", " G"))


def _scaled(count: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while abs(count) >= base and power < len(units) - 1:
        count, power = count / base, power + 1
    return f"{count:.{min(power, 1)}f}{units[power]}"
