"""The command `boxcrew compare`: several detectors on the same photos, side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from boxcrew.cli.document import INTERRUPTED
from boxcrew.cli.output import Output, parse_settings
from boxcrew.compare.results import write_results
from boxcrew.compare.rows import read_row, require_comparable
from boxcrew.compare.settings import CompareConfig
from boxcrew.compare.trainings import open_comparison, print_budget, stored_comparison, train_all, unfinished
from boxcrew.core.config import Tree
from boxcrew.core.errors import BoxcrewError, UsageError
from boxcrew.train.run.directory import choose_folder

_OWN = ("detectors", "runs", "out", "name")


def compare_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    own = {key: tree.pop(key) for key in _OWN if key in tree}
    config = CompareConfig.of({**own, "settings": tree}).with_absolute_paths()
    if config.detectors and "data" not in config.settings:
        raise UsageError("data= is missing", advice="boxcrew compare data=photos detectors=all time=10m")
    _compare(config, config.out or _new_folder(config.name), out)


def resume_comparison(folder: Path, changes: Tree, out: Output) -> None:
    """Continue a comparison with the detector that it was at."""
    if changes:
        raise UsageError(
            f"{next(iter(changes))}=: the settings of a comparison cannot change after its start",
            advice="give another out= to boxcrew compare for a new one",
        )
    _compare(stored_comparison(folder), folder, out)


def _compare(config: CompareConfig, folder: Path, out: Output) -> None:
    if config.runs:
        _compare_runs(config, folder, out)
        return
    configs = config.configs()
    open_comparison(config, folder)
    print_budget(unfinished(configs, folder), out)
    outcome = train_all(configs, folder, out)
    if outcome.interrupted:
        out.info(f"to continue the comparison: boxcrew resume run={folder}")
        sys.exit(INTERRUPTED)
    reasons = [f"{name} failed: {reason}" for name, reason in outcome.failed.items()]
    rows = [read_row(name, folder / name) for name in configs if name not in outcome.failed]
    if not rows:
        raise BoxcrewError("; ".join(reasons), advice=f"then: boxcrew resume run={folder}")
    out.result(write_results(rows, folder, out, warning="; ".join(reasons)))


def _compare_runs(config: CompareConfig, folder: Path, out: Output) -> None:
    names = [path.name for path in config.runs]
    if len(set(names)) < len(names):
        names = [str(path) for path in config.runs]
    rows = [read_row(name, path) for name, path in zip(names, config.runs, strict=True)]
    warning = require_comparable(rows)
    open_comparison(config, folder)
    out.result(write_results(rows, folder, out, warning=warning))


def _new_folder(name: str) -> Path:
    """Return the first free name of runs/compare/<name>, <name>-2, …"""
    return choose_folder(None, Path("compare") / name)
