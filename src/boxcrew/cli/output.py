"""Input and output that all commands share: settings from words, the screen, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console

from boxcrew.cli.document import Document
from boxcrew.core.config import Tree, parse_words
from boxcrew.core.errors import UsageError
from boxcrew.train.bucket.records import local_run, weights
from boxcrew.train.output.screen import Screen


class Output(Screen):
    """The terminal of a command; it is stderr if stdout is for a JSON document."""

    def __init__(self, document: Document) -> None:
        super().__init__(Console(stderr=document.is_wanted))
        self.document = document

    @property
    def as_json(self) -> bool:
        return self.document.is_wanted

    def stdout_for_document(self) -> AbstractContextManager[object]:
        """Keep what libraries print away from stdout, if that is for a JSON document."""
        return redirect_stdout(sys.stderr) if self.as_json else nullcontext()

    def note(self, text: str) -> None:
        """Print a remark, which is no part of what the command gives, on stderr."""
        print(text, file=sys.stderr)

    def result(self, value: Any) -> None:
        """Keep the result of the command, which is printed as JSON at the end if that is wanted."""
        self.document.result = value


def parse_settings(
    words: list[str], *, positional: int = 0, verbatim: Collection[str] = ()
) -> tuple[list[str], Tree]:
    """Split words into positional ones, of which there may be at most `positional`, and settings."""
    names, tree = parse_words(words, verbatim=verbatim)
    if len(names) > positional:
        word, advice = names[positional], "settings are written key=value"
        if Path(word).exists():
            advice += f", such as data={word} or run={word}"
        raise UsageError(f"{word}: not understood", advice=advice)
    return names, tree


def parse_names(words: list[str], *, most: int) -> list[str]:
    """Return the words of a command that takes at most so many names, and no settings."""
    names, tree = parse_settings(words, positional=most)
    for key in tree:
        raise UsageError(f"{key}: this command takes no settings", advice="see --help")
    return names


def require_new(out: Path) -> None:
    """Raise an error if the output file exists."""
    if out.exists():
        raise UsageError(f"out={out}: exists already", advice="give another file name")


def require_run(tree: Tree, *, example: str) -> None:
    """Raise an error with an example if `run` is missing. Of a run under a URL a copy is used."""
    require(tree, "run", example=example)
    tree["run"] = local_run(str(tree["run"]), weights)


def require(tree: Tree, key: str, *, example: str) -> None:
    """Raise an error with an example if a required setting is missing."""
    if key not in tree:
        raise UsageError(f"{key}= is missing", advice=example)
