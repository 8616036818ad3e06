"""Input and output that all commands share: settings from words, the screen, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console

from boxcrew.core.config import Tree, parse_words
from boxcrew.core.errors import UsageError
from boxcrew.report.json_array import JsonArray
from boxcrew.train.output.screen import Screen


class Output(Screen):
    """The terminal of a command; it is stderr if stdout is for a JSON document."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__(Console(stderr=as_json))
        self.as_json = as_json

    def result(self, value: Any) -> None:
        """Print the result of the command on stdout if it is wanted as JSON."""
        self._write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def results(self, out: Path) -> JsonArray:
        """Return an array to which the results of a command are added one by one. If they are wanted as JSON,
        each is printed at once; together they are one document, which also names the folder `out`.
        """
        start = f'{{"out": {json.dumps(str(out), ensure_ascii=False)}, "results": ['
        return JsonArray(self._write, start=start, end="]}\n")

    def _write(self, text: str) -> None:
        if self.as_json:
            # JSON escapes what stdout's encoding cannot express, such as file names that are not UTF-8.
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
            sys.stdout.flush()


def parse_settings(
    words: list[str], *, positional: int = 0, verbatim: Collection[str] = ()
) -> tuple[list[str], Tree]:
    """Split words into positional ones, of which there may be at most `positional`, and settings."""
    names, tree = parse_words(words, verbatim=verbatim)
    if len(names) > positional:
        raise UsageError(f"{names[positional]}: not understood", advice="settings are written key=value")
    return names, tree


def require_new(out: Path) -> None:
    """Raise an error if the output file exists."""
    if out.exists():
        raise UsageError(f"out={out}: exists already", advice="give another file name")


def require(tree: Tree, key: str, *, example: str) -> None:
    """Raise an error with an example if a required setting is missing."""
    if key not in tree:
        raise UsageError(f"{key}= is missing", advice=example)
