"""The `boxcrew` command line. Heavy imports wait until a command needs them, so that help is quick."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import traceback
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from boxcrew.cli.commands import Command, Group
from boxcrew.cli.document import INTERRUPTED, Document, Failure
from boxcrew.cli.help import HELP
from boxcrew.core.errors import BoxcrewError, UnknownSettingError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.core.version import VERSION

_HELP_NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# Any setting may also be an option, `--epochs 3` for `epochs=3`, so typer must let unknown ones pass.
_SETTINGS = {"ignore_unknown_options": True, **_HELP_NAMES}
Words = Annotated[list[str] | None, typer.Argument(metavar="key=value", show_default=False, hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, all else on stderr.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the plan and who does what; do not train.")]
Assume = Annotated[str | None, typer.Option("--assume", metavar="MACHINE", help="Plan for another machine.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write the file; submit nothing.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

_OF_TRAINING = frozenset(
    {"torch", "torchvision", "timm", "safetensors", "matplotlib", "tensorboard", "faster_coco_eval"}
)
"""Packages of the extra `train`, without which exported files can be used from Python."""

app = typer.Typer(
    cls=Group,
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings=_HELP_NAMES,
    help="""Train detectors and other networks on whatever hardware there is.

    Usage:
      boxcrew COMMAND [key=value ...]
    """,
    epilog="""Examples:
      boxcrew train                             an embedded data set, to try it
      boxcrew train data=photos epochs=30       your own photos
      boxcrew predict run=runs/detect/train source=new_photos

    'boxcrew COMMAND --help' shows the settings of a command.
    """,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    if wanted:
        typer.echo(f"boxcrew {VERSION}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Show the version.", callback=_print_version)]


@app.callback()
def _common(ctx: typer.Context, *, version: Version = False) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


def _run(ctx: typer.Context, name: str, words: list[str] | None, *, as_json: bool, **options: bool) -> None:
    from boxcrew.cli.output import Output

    document = ctx.ensure_object(Document)
    document.is_wanted = as_json
    module = import_module(f"boxcrew.cli.{'train' if name == 'resume' else name}")
    try:
        getattr(module, f"{name}_command")(words or [], Output(document), **options)
    except UnknownSettingError as error:
        from boxcrew.train.foreign_words import with_hint

        keys = [word.lstrip("-").partition("=")[0].replace("-", "_") for word in words or []]
        raise with_hint(error, keys, command=name) from None


def _add(name: str) -> None:
    def command(ctx: typer.Context, words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
        _run(ctx, name, words, as_json=json)

    app.command(name, help=HELP[name], cls=Command, context_settings=_SETTINGS)(command)


@app.command(help=HELP["train"], cls=Command, context_settings=_SETTINGS)
def train(
    ctx: typer.Context,
    words: Words = None,
    *,
    json: Json = False,
    explain: Explain = False,
    debug: Debug = False,
) -> None:
    _run(ctx, "train", words, as_json=json, only_explain=explain)


@app.command(help=HELP["plan"], cls=Command, context_settings=_SETTINGS)
def plan(
    ctx: typer.Context,
    words: Words = None,
    *,
    json: Json = False,
    assume: Assume = None,
    debug: Debug = False,
) -> None:
    assumed = [] if assume is None else [f"--assume={assume}"]
    _run(ctx, "plan", [*(words or []), *assumed], as_json=json)


@app.command(help=HELP["submit"], cls=Command, context_settings=_SETTINGS)
def submit(
    ctx: typer.Context,
    words: Words = None,
    *,
    json: Json = False,
    dry_run: DryRun = False,
    debug: Debug = False,
) -> None:
    _run(ctx, "submit", words, as_json=json, dry_run=dry_run)


for _name in HELP:
    if _name not in {"train", "plan", "submit"}:
        _add(_name)


@app.command("help", hidden=True, cls=Command, context_settings=_HELP_NAMES)
def _help(ctx: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Show the help of boxcrew, or of one command."""
    words = ["--help"] if name is None else [name, "--help"]
    get_command(app).main(words, prog_name="boxcrew", standalone_mode=False, obj=ctx.obj)


def main() -> None:
    """Run the console script; an error that the user can fix becomes two lines and an exit code."""
    # OpenMP threads spin before they sleep, by default for milliseconds, and so compete with loader processes
    # and other jobs; if they slept at once, waking them would slow a step of many small layers
    # (docs/decisions/0007). This must be set before torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # Imports make hundreds of thousands of objects that stay; collecting among them takes half a second.
    gc.set_threshold(100_000, 20, 20)
    # At its end Python searches all objects for garbage once more, for seconds after the last line.
    atexit.register(gc.freeze)
    # The errors of torch's libraries, in many lines of addresses, repeat what we report in one.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    document = Document(is_wanted="--json" in sys.argv)
    failure = _run_app(document)
    if failure is not None:
        failure.print()
    document.print(failure)
    sys.exit(0 if failure is None else failure.exit_code)


def _run_app(document: Document) -> Failure | None:
    """Run the command of `sys.argv`; return why it failed, or None."""
    try:
        code = get_command(app).main(prog_name="boxcrew", standalone_mode=False, obj=document)
    except SystemExit as stop:  # of a command that has said why
        code = stop.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        return _failure_of(error)
    return Failure(exit_code=code) if isinstance(code, int) and code else None


def _failure_of(error: Exception) -> Failure:
    """Return the report about an error. One that is not the user's is called a bug; --debug shows where.

    A process that was started as one of several prints its traceback, since it cannot be run again alone.
    """
    is_known = isinstance(error, BoxcrewError | typer.TyperException)
    if "--debug" in sys.argv or (LAUNCHER in os.environ and not is_known):
        traceback.print_exception(error)
    if isinstance(error, BoxcrewError):
        return Failure(message=error.message, advice=error.advice, exit_code=error.exit_code)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _OF_TRAINING:
        needs = "pip install 'boxcrew[train]'"
        return Failure(message=f"{error.name} is not installed", advice=needs, exit_code=2)
    if isinstance(error, typer.TyperException):
        return Failure(message=error.format_message(), advice="see --help", exit_code=error.exit_code)
    bug = "this looks like a bug in boxcrew; run it again with --debug to see where"
    return Failure(message=f"{type(error).__name__}: {error}", advice=bug, exit_code=1)
