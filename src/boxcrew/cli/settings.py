"""The command `boxcrew settings`."""

from __future__ import annotations

import re
from dataclasses import asdict
from fnmatch import fnmatch

from boxcrew.cli.output import Output, parse_names
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.train.foreign_words import HINTS
from boxcrew.train.settings_reference import Setting, list_settings


def settings_command(words: list[str], out: Output) -> None:
    """Print all settings, or those whose key or documentation matches a pattern."""
    pattern = "".join(parse_names(words, most=1))
    every = list_settings()
    if hint := HINTS["train"].get(pattern.lower(), ""):  # another tool's word
        out.info(f"{pattern}: {hint}")
        named = re.findall(r"([\w.]+)=", hint)
        matching = [setting for setting in every if any(_is_named(setting, key) for key in named)]
    else:
        matching = [setting for setting in every if _matches(setting, pattern)]
    if not matching and not hint:
        keys = sorted({setting.key for setting in every})
        raise UsageError(f"{pattern}: no such setting; {suggest(pattern, keys)}")
    out.result([asdict(setting) for setting in matching])
    if matching and not out.as_json:
        rows = [(each.key, each.default, each.type, _text(each)) for each in matching]
        out.table("settings", ("setting", "default", "type", ""), rows, numbers=False)


def _is_named(setting: Setting, key: str) -> bool:
    """Return whether a key means the setting: its own, its short one, or that of its group."""
    return f".{setting.key}".endswith(f".{key}") or setting.key.startswith(f"{key}.")


def _matches(setting: Setting, pattern: str) -> bool:
    if any(sign in pattern for sign in "*?["):
        return fnmatch(setting.key, pattern)
    return pattern.lower() in setting.key.lower() or pattern.lower() in setting.text.lower()


def _text(setting: Setting) -> str:
    only_with = f"({', '.join(setting.choices)})" if setting.choices else ""
    return f"{setting.text} {only_with}".strip()
