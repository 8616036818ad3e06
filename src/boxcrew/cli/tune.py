"""The command `boxcrew tune`: search for better settings, within a time."""

from __future__ import annotations

import sys
from pathlib import Path

from boxcrew.cli.document import INTERRUPTED
from boxcrew.cli.output import Output, parse_settings, require
from boxcrew.core.config import Tree
from boxcrew.core.errors import UsageError
from boxcrew.tune.join import JoinConfig, join
from boxcrew.tune.report import write_report
from boxcrew.tune.runner import Interrupted
from boxcrew.tune.settings import TuneConfig
from boxcrew.tune.study import read_state, resume_study, tune

_OWN = [name for name in TuneConfig.model_fields if name != "settings"]
_VERBS = ("report", "resume", "join")


def tune_command(words: list[str], out: Output) -> None:
    if words and words[0] in _VERBS:
        _continue(words[0], words[1:], out)
        return
    names, tree = parse_settings(words, positional=1)
    own = {key: tree.pop(key) for key in _OWN if key in tree}
    if names:
        own["recipe"] = names[0]
    config = TuneConfig.of({**own, "settings": tree})
    try:
        with out.stdout_for_document():
            out.result(tune(config, out))
    except Interrupted as stop:
        _print_how_to_continue(Path(str(stop)), out)


def _continue(verb: str, words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    require(tree, "study", example=f"boxcrew tune {verb} study=runs/tune/study")
    if verb == "join":
        _join(JoinConfig.of(tree), out)
        return
    folder = Path(str(tree.pop("study")))
    _refuse(tree)
    if verb == "report":
        study, ledger = read_state(folder)
        out.result(write_report(study, folder, ledger, out))
        return
    try:
        with out.stdout_for_document():
            out.result(resume_study(folder, out))
    except Interrupted:
        _print_how_to_continue(folder, out)


def _join(config: JoinConfig, out: Output) -> None:
    try:
        out.result({"study": str(config.study), "trainings": join(config, out)})
    except Interrupted:
        sys.exit(INTERRUPTED)


def _refuse(tree: Tree) -> None:
    for key in tree:
        raise UsageError(
            f"{key}=: the settings of a study cannot change after its start",
            advice="give another out= to boxcrew tune for a new one",
        )


def _print_how_to_continue(folder: Path, out: Output) -> None:
    out.info(f"to continue the study: boxcrew tune resume study={folder}")
    sys.exit(INTERRUPTED)
