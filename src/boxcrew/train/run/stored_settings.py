"""The settings of a run that was started: its `config.yaml`, and what its checkpoint was made with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxcrew.core.config import Tree, read_yaml
from boxcrew.core.errors import UsageError
from boxcrew.train.config import LIMITS, RunConfig
from boxcrew.train.run.directory import STAGES, stages_record
from boxcrew.train.run.record import newest_stored

FREE = {
    *LIMITS,
    "device",
    "plan",
    "goal",
    "trial",
    "loader",
    "deploy",
    "saver",
    "evaluation",
    "summaries",
    "guard",
}
"""Settings, and groups of them, that may change: they do not affect the steps already done."""

FREE_SETTINGS = {"data.disk"}  # of groups that must not change
FIXED = {"evaluation.metric"}  # it decides the best weights: values of two metrics cannot be compared
PATHS = {"out", "name"}  # not settings of the training
NEW_RUN = (
    "start a new run with another out=, and init=resume init.run=… (all of its state) "
    "or init=finetune init.checkpoint=… (its weights)"
)
_MAX_NAMED = 3

Changes = dict[str, tuple[Any, Any]]
"""Dotted key -> value before and now."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Before:
    """The settings that the steps already done were made with."""

    tree: Tree
    source: Path  # the checkpoint, or the list of stages


def stored_settings(folder: Path, warn: Callable[[str], None]) -> RunConfig:
    """Return the settings in a run's `config.yaml`; if it is damaged, say so and return those that the run
    was made with.
    """
    file, before = folder / "config.yaml", _settings_before(folder)
    if before is None:
        return RunConfig.of(read_yaml(file))
    try:
        tree = read_yaml(file)
        missing = [key for key in flat(before.tree) if key not in flat(tree)]
        named = ", ".join(missing[:_MAX_NAMED])
        more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        damage = f"{file}: cut or damaged: it has no {named}{more}" if missing else ""
    except (UsageError, OSError) as error:
        damage = error.message if isinstance(error, UsageError) else f"{file}: {error.strerror}"
    if damage:
        warn(f"{damage}; the settings in {before.source} are used")
        return RunConfig.of(before.tree)
    try:
        return RunConfig.of(tree)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}", advice=_restore(file, error.advice)) from None


def resumed_settings(folder: Path, words: Tree, warn: Callable[[str], None]) -> RunConfig:
    """Return the settings with which to resume a run: those that it has, changed by `words`.

    An edit of `config.yaml` that would change the past is a `UsageError`, unless `words` take it back.
    """
    stored, before = stored_settings(folder, warn), _settings_before(folder)
    config = stored.changed({**words, "out": str(folder)})
    if before is None:
        return config
    began = RunConfig.of(before.tree)
    edits = _refused(_differences(began, stored))
    for key, (old, new) in _refused(_differences(began, config)).items():
        if edits.get(key) == (old, new):
            file = folder / "config.yaml"
            raise UsageError(
                f"{file}: {key}: {new}: the run was started with {old}; this cannot change any more",
                advice=_restore(file, f"to change it, {NEW_RUN}"),
            )
    return config


def changes_since(began: RunConfig, config: RunConfig, folder: Path) -> Changes:
    """Return the settings that differ from those that the run in `folder` was made with; raise `UsageError`
    if one must not.
    """
    changes = _differences(began, config)
    for key, (old, new) in _refused(changes).items():
        raise UsageError(
            f"{key}={new}: the run in {folder} was started with {old}; this cannot change any more",
            advice=NEW_RUN,
        )
    return changes


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a tree by their dotted keys."""
    settings: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            settings |= flat(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


def _settings_before(folder: Path) -> _Before | None:
    """Return the settings that a run was made with; None if there is neither a checkpoint nor a stage."""
    if (folder / STAGES).is_file():
        return _Before(tree=stages_record(folder)["config"], source=folder / STAGES)
    stored = newest_stored(folder)
    return None if stored is None else _Before(tree=stored.config, source=stored.source)


def _differences(began: RunConfig, config: RunConfig) -> Changes:
    before, now = flat(began.tree()), flat(config.tree())
    return {
        key: (before.get(key), now.get(key))
        for key in sorted({*before, *now} - PATHS)
        if before.get(key) != now.get(key)
    }


def _refused(changes: Changes) -> Changes:
    return {
        key: values
        for key, values in changes.items()
        if key in FIXED or (key not in FREE_SETTINGS and key.partition(".")[0] not in FREE)
    }


def _restore(file: Path, otherwise: str) -> str:
    """Return the advice for a file that cannot be used as it is."""
    restore = f"to continue as it was, remove {file}, which is then written again"
    return f"{restore}; {otherwise}" if otherwise else restore
