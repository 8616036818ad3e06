"""The end of a command: its one JSON document on stdout if --json asks for it, or why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

INTERRUPTED = 130  # exit code after Ctrl-C


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a command failed; the message is empty if it is printed already, or after Ctrl-C."""

    message: str = ""
    advice: str = ""
    exit_code: int

    def print(self) -> None:
        """Print the two lines for people on stderr."""
        if self.message:
            print(f"error: {self.message}", file=sys.stderr)
        if self.advice:
            print(f"  {self.advice}", file=sys.stderr)


class Document:
    """The JSON document of a command. It is printed when all is done, so that a command which fails after it
    has a result prints one document too: the result with `error`, `advice` and `exit` beside it.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self.result: Any = None

    def take(self, text: str) -> None:
        """Keep the document that another process has printed; nothing if that is not a whole one."""
        with contextlib.suppress(ValueError):
            self.result = json.loads(text)

    def print(self, failure: Failure | None) -> None:
        if not self.is_wanted:
            return
        value = self.result if failure is None else self._with_failure(failure)
        if value is None:  # --help and the like print text
            return
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        # JSON escapes what stdout's encoding cannot express, such as file names that are not UTF-8.
        encoding = sys.stdout.encoding or "utf-8"
        try:
            sys.stdout.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has enough; Python would complain when it flushes at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _with_failure(self, failure: Failure) -> dict[str, Any]:
        result = self.result if isinstance(self.result, dict) else {}
        if not failure.message and "error" in result:  # the chief's document, passed on
            return result
        reason = "interrupted" if failure.exit_code == INTERRUPTED else f"exit code {failure.exit_code}"
        error = {
            "error": failure.message or reason,
            "advice": failure.advice,
            "exit": failure.exit_code,
        }
        return {**error, **{key: value for key, value in result.items() if key not in error}}
