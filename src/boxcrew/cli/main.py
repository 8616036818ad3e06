"""The `boxcrew` command line. Heavy imports wait until a command needs them, so that help is quick."""
# ruff: noqa: D301 - click needs the character \b in help texts, to keep the lines of a paragraph apart

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from types import TracebackType
from typing import Annotated

import typer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.core.version import VERSION

# Any setting may also be an option, `--epochs 3` for `epochs=3`, so typer must let unknown ones pass.
_SETTINGS = {"ignore_unknown_options": True, "max_content_width": 100}
Words = Annotated[list[str] | None, typer.Argument(metavar="key=value", show_default=False, hidden=True)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, all else on stderr.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the plan and who does what; do not train.")]
Assume = Annotated[str | None, typer.Option("--assume", metavar="MACHINE", help="Plan for another machine.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
    help="Train detectors and other networks on whatever hardware there is: exactly, fast, and explained.",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    if wanted:
        typer.echo(f"boxcrew {VERSION}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", help="Show the version.", callback=_print_version)]


@app.callback()
def _common(*, version: Version = False) -> None: ...


def _run(name: str, words: list[str] | None, *, as_json: bool, **options: bool) -> None:
    from boxcrew.cli.output import Output

    module = import_module(f"boxcrew.cli.{'train' if name == 'resume' else name}")
    getattr(module, f"{name}_command")(words or [], Output(as_json=as_json), **options)


@app.command(context_settings=_SETTINGS)
def train(words: Words = None, *, json: Json = False, explain: Explain = False, debug: Debug = False) -> None:
    """Train a detector, or another kind of network.

    \b
    boxcrew train [RECIPE | FILE.yaml] data=PATH [key=value ...]

    The default recipe is 'starter', a detector that suits a CPU; the default data is an embedded set.
    The recipes fc, cnn, rnn and gan train other kinds of networks.

    \b
    How long:   epochs=20, steps=1000 or time=15m
    How:        batch=, size=, init=, optim.rate=, seed=
    Where:      device=auto, out=DIR, name=NAME

    'boxcrew recipes' lists the recipes, 'boxcrew recipes NAME' shows every setting of one.
    """
    _run("train", words, as_json=json, only_explain=explain)


@app.command(context_settings=_SETTINGS)
def plan(words: Words = None, *, json: Json = False, assume: Assume = None, debug: Debug = False) -> None:
    """Show how a run would use the machine: memory, seconds, and why.

    \b
    boxcrew plan [RECIPE | FILE.yaml] data=PATH [key=value ...] [--assume MACHINE]

    Settings are the same as for 'boxcrew train'. A few steps are measured in a separate process, for at
    most 20 s.

    \b
    --assume MACHINE     such as "2x24GB-gpu, 16 cores, 64GB", or a file of 'boxcrew devices --json'
    trial=false          do not measure steps
    goal=fastest         or smallest, deadline:2h, budget:8GB: what to plan for
    out=plan.json        write the plan; use it with 'boxcrew train ... plan=plan.json'
    out=plan.png         draw the plan
    """
    _run("plan", [*(words or []), *([] if assume is None else [f"--assume={assume}"])], as_json=json)


def _add(name: str, help: str) -> None:
    def command(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
        _run(name, words, as_json=json)

    app.command(name, help=help, context_settings=_SETTINGS)(command)


_HELP = {  # of the commands that have no options of their own
    "resume": """Continue a run that was stopped, or extend one that is finished.

    \b
    boxcrew resume run=DIR [epochs=N] [steps=N] [time=15m] [device=auto]
    """,
    "val": """Measure a trained network on a data set.

    \b
    boxcrew val run=DIR [data=PATH] [key=value ...]

    \b
    split=val            or test, train
    weights=best         or last, both
    batch=16, device=auto
    """,
    "predict": """Use a trained network: detect, classify, continue text, make images.

    \b
    A detector:        boxcrew predict run=DIR source=SOURCE [score=0.25]
    A classifier:      boxcrew predict run=DIR source=SOURCE|TABLE.csv|TEXTS.txt
    A language model:  boxcrew predict run=DIR text="The shop" [num=200 temperature=0.8]
    A GAN:             boxcrew predict run=DIR [num=16]

    \b
    SOURCE is one of:
    photo.jpg, FOLDER, 'glob*.jpg', or list.txt with a path on each line
    -                    an image from stdin
    https://...          an image, with download=true
    clip.mp4             a video, detectors only [stride=N: every Nth frame, frames=N: at most N]
    0                    a camera, detectors only, until Ctrl-C or frames=N

    \b
    out=DIR              where results go; the default is runs/.../predict
    weights=best         or last
    device=auto
    """,
    "data": """Show what is in a data set, convert it, or write an embedded one.

    \b
    Show and check:      boxcrew data PATH [out=sheet.jpg]
    Convert or write:    boxcrew data make PATH|shelf out=DIR format=voc|coco|yolo
    """,
    "doctor": """Examine a detection data set and write an HTML page of what to fix.

    \b
    boxcrew doctor data=PATH [RECIPE] [detector=NAME size=PIXELS] [run=DIR] [out=DIR]

    Recipe and settings are the same as for 'boxcrew train'; they choose the detector that the boxes are
    compared with. With run=, the run's detector is used, and labels that it contradicts are shown.
    The page is runs/doctor/NAME/doctor.html.
    """,
    "devices": """Show the cores, memory and accelerators of this machine, and their speed.

    \b
    boxcrew devices [machine=FILE.json]

    Cores and memory are what the container or the job may use. Speeds are measured once, for some seconds.
    --json prints a description that can be edited, and shown with machine=.
    """,
    "recipes": """List the recipes, or show every setting of one.

    \b
    boxcrew recipes [NAME]
    """,
    "settings": """List every setting of a run with its default, its type and what it does.

    \b
    boxcrew settings [PATTERN]     such as rate, or 'optim.*'
    """,
}
for _name, _help in _HELP.items():
    _add(_name, _help)


def main() -> None:
    """Run the console script; an error that the user can fix becomes two lines and an exit code."""
    # OpenMP threads spin before they sleep, by default for milliseconds, and so compete with loader processes
    # and other jobs; if they slept at once, waking them would slow a step of many small layers
    # (docs/decisions/0007). This must be set before torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    # Imports make hundreds of thousands of objects that stay; collecting among them takes half a second.
    gc.set_threshold(100_000, 20, 20)
    # The errors of torch's libraries, in many lines of addresses, repeat what we report in one.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    debug = "--debug" in sys.argv
    try:
        app()
    except BoxcrewError as error:
        if debug:
            raise
        print(f"error: {error.message}", file=sys.stderr)
        if error.advice:
            print(f"  {error.advice}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if not debug:
            sys.excepthook = _one_line  # only now: typer has set its own


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report an error that is not the user's in two lines; --debug shows its traceback.

    A process that was started as one of several prints its traceback, since it cannot be run again alone.
    """
    if LAUNCHER in os.environ:
        traceback.print_exception(kind, error, trace)
    print(f"error: {kind.__name__}: {error}", file=sys.stderr)
    print("  this looks like a bug in boxcrew; run it again with --debug to see where", file=sys.stderr)
