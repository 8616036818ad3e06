"""The end of a command: its one JSON document on stdout if --json asks for it, or why it failed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boxcrew.core.errors import PREEMPTED
from boxcrew.report.json_array import JsonArray

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
    """The JSON document of a command. It is printed or completed when all is done, so that a command which
    fails after it has a result prints one document too: `error`, `advice` and `exit` stand beside the result.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self.result: Any = None
        self._is_open = False  # whether the beginning is printed

    def open_array(self, fields: Mapping[str, object], name: str) -> JsonArray:
        """Print these fields, and return an array of that name, whose items are printed one by one: there may
        be too many to keep them. The command has no other result.
        """
        self._is_open = True
        start = json.dumps(fields, ensure_ascii=False).removesuffix("}")
        return JsonArray(self._write, start=f'{start}, "{name}": [', end="]")

    def take(self, text: str) -> None:
        """Keep the document that another process has printed; nothing if that is not a whole one."""
        with contextlib.suppress(ValueError):
            self.result = json.loads(text)

    def print(self, failure: Failure | None) -> None:
        value = self.result if failure is None else self._with_failure(failure)
        if self._is_open:
            rest = json.dumps(value or {}, ensure_ascii=False).removeprefix("{")
            self._write(f", {rest}\n" if value else f"{rest}\n")
        elif value is not None:  # --help and the like print text
            self._write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def _write(self, text: str) -> None:
        if not self.is_wanted:
            return
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
        orderly = {INTERRUPTED: "interrupted", PREEMPTED: "preempted"}
        reason = orderly.get(failure.exit_code, f"exit code {failure.exit_code}")
        error = {
            "error": failure.message or reason,
            "advice": failure.advice,
            "exit": failure.exit_code,
        }
        return {**error, **{key: value for key, value in result.items() if key not in error}}
