"""The command `boxcrew submit`: hand a training to a scheduler."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence

from boxcrew.api import run_config
from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.config import split_words
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.recipes import RECIPES
from boxcrew.submit.schedulers import SCHEDULERS, Submission
from boxcrew.submit.settings import SubmitConfig
from boxcrew.submit.write import write_job

_PLACES = ("data", "data.path", "out")


def submit_command(words: list[str], out: Output, *, dry_run: bool) -> None:
    names, tree = parse_settings(words, positional=2)
    settings = SubmitConfig.of(tree.pop("submit", {}))
    scheduler_name, recipe = _named(names)
    scheduler = SCHEDULERS.get(scheduler_name)
    if not dry_run and shutil.which(scheduler.program) is None:
        raise UsageError(
            f"{scheduler.program} is not installed: nothing can be submitted to {scheduler_name} from here",
            advice="--dry-run writes the file, and prints the command that submits it",
        )
    folder = tree.pop("out", None)
    if folder is None:
        raise UsageError(
            "out= is missing",
            advice="the directory or URL of the run: a job that is restarted continues there",
        )
    if recipe is not None and recipe not in RECIPES.names() and scheduler_name != "slurm":
        raise UsageError(
            f"{recipe}: not the name of a recipe", advice="a job on another machine does not find this file"
        )
    config = run_config(recipe, tree)
    submission = Submission(
        settings=settings,
        words=tuple(_passed_on(words, scheduler_name)),
        data=config.data.path,
        out=str(folder),
    )
    written = write_job(scheduler, submission, config, out)
    out.info(f"file: {written.file}")
    out.info(f"to submit it: {shlex.join(written.command)}")
    out.result(written.to_json())
    if not dry_run:
        _submit(written.command)


def _named(names: Sequence[str]) -> tuple[str, str | None]:
    if not names:
        known = ", ".join(SCHEDULERS.names())
        raise UsageError("which scheduler?", advice=f"boxcrew submit SCHEDULER …; there are: {known}")
    return names[0], names[1] if len(names) > 1 else None


def _passed_on(words: Sequence[str], scheduler: str) -> list[str]:
    """Return the words of the training: all but those of this command, and the places of data and run."""
    passed = []
    for key, text in split_words(words):
        if key is None and text != scheduler:
            passed.append(text)
        elif key is not None and key not in _PLACES and not key.startswith("submit."):
            passed.append(f"{key}={text}")
    return passed


def _submit(command: Sequence[str]) -> None:
    """Run the scheduler's command, which prints for itself."""
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - our own words
    if code:
        raise BoxcrewError(
            f"{shlex.join(command)}: ended with exit code {code}", advice="the file is written; see above"
        )
