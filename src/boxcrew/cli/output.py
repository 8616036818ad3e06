"""Where a command's words go."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from typing import Any

from rich.console import Console

from boxcrew.core.config import Tree, parse_words
from boxcrew.core.errors import UsageError
from boxcrew.train.output.screen import Screen


def screen(*, as_json: bool) -> Screen:
    """The terminal, or stderr where stdout belongs to a JSON document."""
    return Screen(Console(stderr=as_json))


def print_json(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    # What the encoding has no characters for, such as names of files that are not UTF-8, JSON can escape.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def settings(
    words: list[str], *, positional: int = 0, verbatim: Collection[str] = ()
) -> tuple[list[str], Tree]:
    """Positional words and settings; more of the former than a command knows is an error."""
    places, tree = parse_words(words, verbatim=verbatim)
    if len(places) > positional:
        raise UsageError(f"{places[positional]}: not understood", advice="settings are written key=value")
    return places, tree


def require(tree: Tree, key: str, *, example: str) -> None:
    """A setting that a command cannot do without."""
    if key not in tree:
        raise UsageError(f"{key}= is missing", advice=example)
