"""The command `boxcrew settings`."""

from __future__ import annotations

from dataclasses import asdict
from fnmatch import fnmatch

from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.train.settings_reference import Setting, list_settings


def settings_command(words: list[str], out: Output) -> None:
    """Print all settings, or those whose key or documentation matches a pattern."""
    positional, _ = parse_settings(words, positional=1)
    every = list_settings()
    matching = [setting for setting in every if not positional or _matches(setting, positional[0])]
    if not matching:
        keys = sorted({setting.key for setting in every})
        raise UsageError(f"{positional[0]}: no such setting; {suggest(positional[0], keys)}")
    out.result([asdict(setting) for setting in matching])
    if not out.as_json:
        rows = [(each.key, each.default, each.type, _text(each)) for each in matching]
        out.table("settings", ("setting", "default", "type", ""), rows, numbers=False)


def _matches(setting: Setting, pattern: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return fnmatch(setting.key, pattern)
    return pattern.lower() in setting.key.lower() or pattern.lower() in setting.text.lower()


def _text(setting: Setting) -> str:
    only_with = f"({', '.join(setting.choices)})" if setting.choices else ""
    return f"{setting.text} {only_with}".strip()
