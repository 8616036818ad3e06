"""The `boxcrew` command. Heavy imports wait until a command needs them, so that help is quick."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from types import TracebackType
from typing import Annotated

import typer

from boxcrew.core.errors import BoxcrewError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.core.version import VERSION

# Options are settings: `--epochs 3` says the same as `epochs=3`. So typer is to leave them alone.
_FREE = {"ignore_unknown_options": True}
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[key=value …]", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, everything else on stderr.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show who would do what where, and do not train.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train detectors and other networks on whatever hardware there is: exactly, fast, and explained.",
)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"boxcrew {VERSION}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=lambda wanted: _version(wanted=wanted)),
    ] = False,
) -> None: ...


@app.command(context_settings=_FREE)
def train(words: Words = None, *, json: Json = False, explain: Explain = False, debug: Debug = False) -> None:
    """Train a detector, or another kind of network: fc, cnn, rnn, gan.

    boxcrew train [RECIPE|FILE.yaml] data=PATH [key=value …]

    Without a recipe: 'starter', a detector which suits a CPU. Without data: an embedded set. Often set:
    epochs, steps, time (90s, 15m, 2h), batch, size, device, out, name, seed, init, optim.rate.
    'boxcrew recipes' lists the recipes, 'boxcrew recipes NAME' everything that can be set.
    """
    from boxcrew.cli.train import train_command

    train_command(words or [], as_json=json, only_explain=explain)


@app.command(context_settings=_FREE)
def plan(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Show how a run would use the machine, and what it would take: memory, seconds, and why.

    boxcrew plan [RECIPE|FILE.yaml] data=PATH [key=value …] [--assume "2x24GB-gpu, 16 cores, 64GB"]

    Settings as for training. A few steps are measured in a separate process, in at most 20 s; trial=false
    leaves that out. goal=fastest|smallest|deadline:2h|budget:8GB says what is best. With --assume the plan is
    for a machine that is not here, described in words or by a file that 'boxcrew devices --json' wrote.
    out=plan.json writes the plan, to be edited and used with train … plan=plan.json; out=plan.png draws it.
    """
    from boxcrew.cli.plan import plan_command

    plan_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def resume(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Go on with a run that was stopped, or make it longer.

    boxcrew resume run=DIR [epochs=… steps=… time=… device=…]
    """
    from boxcrew.cli.train import resume_command

    resume_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def val(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Measure what was trained.

    boxcrew val run=DIR [data=PATH split=val|test|train weights=best|last|both batch=16 device=auto]
    """
    from boxcrew.cli.val import val_command

    val_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def predict(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Use what was trained: find things in photos, tell classes, continue text, make pictures.

    boxcrew predict run=DIR source=PHOTO|FOLDER|'GLOB' [out=DIR score=0.25 weights=best|last device=auto]
    boxcrew predict run=DIR source=PICTURES|TABLE.csv|TEXTS.txt       of a classifier
    boxcrew predict run=DIR text="The shop" [num=200 temperature=0.8] of a language model
    boxcrew predict run=DIR [num=16]                                  of a GAN
    """
    from boxcrew.cli.predict import predict_command

    predict_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def data(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Look at a data set, convert it, or write the embedded one to disk.

    boxcrew data PATH [out=sheet.jpg]                 what is in it, and what is wrong with it
    boxcrew data make shelf|PATH out=DIR format=voc|coco|yolo
    """
    from boxcrew.cli.data import data_command

    data_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def doctor(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Examine a data set: one HTML page with pictures that says what is wrong and what to do.

    boxcrew doctor data=PATH [RECIPE] [detector=… size=…] [run=DIR] [out=DIR]

    Recipe and settings as for training: they say which detector the boxes are held against. With run=, its
    detector is, and labels that it contradicts are shown. The page is runs/doctor/<name>/doctor.html.
    """
    from boxcrew.cli.doctor import doctor_command

    doctor_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def devices(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """Show what this machine has, and how fast it is.

    boxcrew devices [machine=FILE.json]

    Cores and memory are those that a container or a job leaves. Speeds are measured for some seconds the
    first time. --json prints a description that can be edited, and shown again with machine=.
    """
    from boxcrew.cli.devices import devices_command

    devices_command(words or [], as_json=json)


@app.command(context_settings=_FREE)
def recipes(words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
    """List the recipes, or show everything that one of them sets.

    boxcrew recipes [NAME]
    """
    from boxcrew.cli.recipes import recipes_command

    recipes_command(words or [], as_json=json)


def main() -> None:
    """The console script: errors a user can mend are two lines and an exit code."""
    _let_threads_wait_briefly()
    # Importing makes hundreds of thousands of objects that all stay: looking for garbage among them over and
    # over takes half a second.
    gc.set_threshold(100_000, 20, 20)
    # torch's libraries would tell in many lines of addresses what we tell in one.
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
            sys.excepthook = _one_line  # only now: typer has put its own there


def _let_threads_wait_briefly() -> None:
    """Before torch is imported: for how long OpenMP threads look for work before they sleep.

    As they come they look for milliseconds, and so fight with loader processes and other jobs; if they sleep
    at once, a step of many small layers is slowed by waking them (docs/decisions/0007).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For an error that is not the user's: say so in a line; the traceback is there for whoever wants it. A
    process that one of several is cannot be run again by itself, and says it at once.
    """
    if LAUNCHER in os.environ:
        traceback.print_exception(kind, error, trace)
    print(f"error: {kind.__name__}: {error}", file=sys.stderr)
    print("  this looks like a fault in boxcrew; run it again with --debug to see where", file=sys.stderr)
