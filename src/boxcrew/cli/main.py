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
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

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


_HELP = {
    "train": """Train a detector, or another kind of network.

    Usage:
      boxcrew train [RECIPE | FILE.yaml] [data=PATH] [key=value ...]

    The default recipe is 'starter', a detector that suits a CPU. The recipes fc,
    cnn, rnn and gan train other kinds of networks; 'boxcrew recipes' lists all.

    Settings:
      data=PATH            data set: VOC, COCO, YOLO, ...; default: an embedded one
      epochs=20            length of the run; or steps=1000; time=15m may be added:
                           the run ends at what comes first
      batch=16             samples of a step, over all devices
      size=320             side of the input in pixels
      init=pretrained      or scratch, finetune (init.checkpoint=RUN)
      optim.rate=0.001     learning rate
      seed=0               seed of everything random
      device=auto          or cpu, cuda, cuda:0, cuda:0,cuda:1
      out=DIR              directory of the run; default: a new one under runs/
      name=NAME            its name under runs/

    'boxcrew settings' lists all settings, 'boxcrew recipes NAME' those of a recipe.

    Examples:
      boxcrew train data=photos epochs=30
      boxcrew train ssd300_vgg16 data=photos/data.yaml batch=8 time=2h
      boxcrew train data=photos optim=adamw optim.rate=1e-3 --explain
    """,
    "plan": """Show how a run would use the machine: memory, seconds, and why.

    Usage:
      boxcrew plan [RECIPE | FILE.yaml] [data=PATH] [key=value ...]
                   [--assume MACHINE]

    Takes the settings of 'boxcrew train'. A few steps are measured in a separate
    process, for at most 20 s.

    Settings:
      trial=false          do not measure steps
      goal=fastest         or smallest, deadline:2h, budget:8GB: what to plan for
      out=plan.json        write the plan, for 'boxcrew train ... plan=plan.json'
      out=plan.png         draw the plan
      --assume MACHINE     such as "2x24GB-gpu, 16 cores, 64GB", or a file that
                           'boxcrew devices --json' wrote

    Examples:
      boxcrew plan data=photos epochs=30
      boxcrew plan ssd300_vgg16 data=photos --assume "24GB-gpu, 8 cores, 32GB"
      boxcrew plan data=photos goal=smallest out=plan.json
    """,
    "resume": """Continue a run that was stopped, or extend one that is finished.

    Usage:
      boxcrew resume run=DIR [key=value ...]

    The result is the same as if the run had never stopped.

    Settings:
      run=DIR              directory of the run
      epochs=40            new length of the run, from its start; or steps=, time=
      device=auto          where to continue

    Settings that would change what was learned before are refused.

    Examples:
      boxcrew resume run=runs/detect/train
      boxcrew resume run=runs/detect/train epochs=40
    """,
    "val": """Measure a trained network on a data set.

    Usage:
      boxcrew val run=DIR [data=PATH] [key=value ...]

    Settings:
      run=DIR              directory of the run, or a weight file
      data=PATH            data set; default: that of the run
      format=auto          format of the data set
      split=val            or test, train, all
      weights=best         or last, both
      batch=16             samples that are evaluated at once
      device=auto          or cpu, cuda, cuda:0

    Examples:
      boxcrew val run=runs/detect/train split=test
      boxcrew val run=runs/detect/train data=other_photos split=all --json
    """,
    "predict": """Use a trained network: detect, classify, continue text, make images.

    Usage:
      boxcrew predict run=DIR source=SOURCE [score=0.25]       a detector
      boxcrew predict run=DIR source=SOURCE|TABLE.csv|TEXTS    a classifier
      boxcrew predict run=DIR [text=TEXT] [num=400]            a language model
      boxcrew predict run=DIR [num=64]                         a GAN

    Sources:
      photo.jpg            an image
      FOLDER               all images in it, at any depth
      'photos/*.png'       a pattern, quoted
      list.txt             a path on each line
      -                    an image from stdin
      https://...          an image, with download=true
      clip.mp4             a video (detectors only)
      0                    a camera (detectors only), until Ctrl-C

    Settings:
      run=DIR              directory of the run, or a weight file
      score=0.25           detections with a lower score are not shown
      stride=5 frames=100  every fifth frame of a video or camera, at most 100
      out=DIR              directory of the results; default: runs/.../predict
      weights=best         or last
      device=auto          or cpu, cuda, cuda:0
      temperature=0.8      of a language model: lower is less varied
      seed=0               of a language model or GAN

    Examples:
      boxcrew predict run=runs/detect/train source=photos/new
      boxcrew predict run=runs/detect/train source=clip.mp4 stride=2 out=found
      boxcrew predict run=runs/sequence/train text="The shop" num=200
    """,
    "data": """Show what is in a data set, or convert it to another format.

    Usage:
      boxcrew data PATH [out=sheet.jpg]
      boxcrew data convert PATH out=DIR format=FORMAT

    PATH may also be shelf, the embedded set. Problems of the data are reported;
    --json names all of them. Nothing of the data set is changed.

    Settings:
      out=sheet.jpg        draw training images with their boxes
      out=DIR              of convert: a new folder
      format=FORMAT        of convert: voc, coco, yolo, labelme, cvat or
                           label_studio; otherwise the format to read
      read_format=auto     of convert: the format to read
      data.coordinates=pixels, data.boxes=, data.first_class=, data.rescale=
                           how to read boxes, if a warning names one of them

    Examples:
      boxcrew data photos
      boxcrew data convert photos out=photos_coco format=coco
    """,
    "doctor": """Examine a detection data set and write an HTML page of what to fix.

    Usage:
      boxcrew doctor data=PATH [RECIPE] [key=value ...]
      boxcrew doctor run=DIR [data=PATH]

    Recipe and settings are those of 'boxcrew train'; they choose the detector that
    the boxes are compared with. With run=, the run's detector is used, and labels
    that it contradicts are shown.

    Settings:
      data=PATH            data set of images with boxes
      run=DIR              a run on it
      detector=ssdlite     detector to compare the boxes with; size= is its input
      data.strict=true     exit code 3 if there is anything to fix
      out=DIR              directory of the page; default: runs/doctor/NAME

    Examples:
      boxcrew doctor data=photos
      boxcrew doctor data=photos run=runs/detect/train out=page
    """,
    "devices": """Show the cores, memory and accelerators of this machine, and their speed.

    Usage:
      boxcrew devices [machine=FILE.json]

    Cores and memory are what the container or the job may use. Speeds are measured
    once, for some seconds. --json prints a description that can be edited.

    Settings:
      machine=FILE.json    show this description instead

    Examples:
      boxcrew devices
      boxcrew devices --json > machine.json
    """,
    "recipes": """List the recipes, or show every setting of one.

    Usage:
      boxcrew recipes [NAME]

    Examples:
      boxcrew recipes
      boxcrew recipes ssd300_vgg16
    """,
    "settings": """List every setting of a run with its default, its type and what it does.

    Usage:
      boxcrew settings [PATTERN]

    PATTERN is part of a key or of its description, or a key with *, ? or [].

    Examples:
      boxcrew settings rate
      boxcrew settings 'optim.*'
    """,
}


def _add(name: str) -> None:
    def command(ctx: typer.Context, words: Words = None, *, json: Json = False, debug: Debug = False) -> None:
        _run(ctx, name, words, as_json=json)

    app.command(name, help=_HELP[name], cls=Command, context_settings=_SETTINGS)(command)


@app.command(help=_HELP["train"], cls=Command, context_settings=_SETTINGS)
def train(
    ctx: typer.Context,
    words: Words = None,
    *,
    json: Json = False,
    explain: Explain = False,
    debug: Debug = False,
) -> None:
    _run(ctx, "train", words, as_json=json, only_explain=explain)


@app.command(help=_HELP["plan"], cls=Command, context_settings=_SETTINGS)
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


for _name in _HELP:
    if _name not in {"train", "plan"}:
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
    if isinstance(error, typer.TyperException):
        return Failure(message=error.format_message(), advice="see --help", exit_code=error.exit_code)
    bug = "this looks like a bug in boxcrew; run it again with --debug to see where"
    return Failure(message=f"{type(error).__name__}: {error}", advice=bug, exit_code=1)
