"""The commands as typer sees them: help is shown as it is written, and a wrong name gets a hint."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest

_VERBS = {  # of other tools
    "detect": "predict",
    "infer": "predict",
    "inference": "predict",
    "test": "val",
    "eval": "val",
    "evaluate": "val",
    "validate": "val",
    "fit": "train",
    "finetune": "train … init=finetune init.checkpoint=RUN",
    "continue": "resume",
    "check": "data PATH",
    "convert": "data convert PATH",
    "onnx": "export",
    "list": "recipes",
    "models": "recipes",
    "config": "settings",
    "version": "--version",
}


class Command(TyperCommand):
    """A command whose help text is shown line by line as it is written; the usage stands in the text."""

    def format_usage(self, ctx: Any, formatter: Any) -> None: ...

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        _write_lines(self.help or "", formatter)


class Group(TyperGroup):
    """All commands. Their list shows whole lines, and a wrong name gets a suggestion."""

    def format_usage(self, ctx: Any, formatter: Any) -> None: ...

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        _write_lines(self.help or "", formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(self.commands[name].help)) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write_paragraph()
        _write_lines(self.epilog or "", formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name in _VERBS:
            raise UsageError(f"{name}: no such command", advice=f"here it is: boxcrew {_VERBS[name]}")
        if "=" in name:
            problem, advice = f"{name}: the command is missing", f"for example: boxcrew train {name}"
            raise UsageError(problem, advice=advice)
        visible = [known for known in self.list_commands(ctx) if not self.commands[known].hidden]
        problem = f"{name}: no such command; {suggest(name, visible)}"
        raise UsageError(problem, advice="boxcrew --help says what each does")


def _write_lines(text: str, formatter: Any) -> None:
    formatter.write(inspect.cleandoc(text) + "\n")


def _first_line(text: str | None) -> str:
    return inspect.cleandoc(text or "").partition("\n")[0]
