"""The words of a search space: `search.optim.rate=1e-4..1e-2:log search.optim.name=sgd,adamw`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from boxcrew.core.config import Tree
from boxcrew.core.errors import UnknownSettingError, UsageError
from boxcrew.core.registry import suggest
from boxcrew.train.config import RunConfig
from boxcrew.train.run.stored_settings import flat
from boxcrew.train.settings_reference import Setting, list_settings
from boxcrew.tune.space import Dimension, with_settings

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?")

_REASONS = {
    "data": "all trials learn from the same data",
    "seed": "the best seed is luck; the report says how much seeds differ",
    "steps": "all trials have the same length",
    "epochs": "all trials have the same length",
    "time": "it is the time of the whole study",
    **dict.fromkeys(("out", "name"), "each trial has its own directory"),
    **dict.fromkeys(
        ("device", "plan", "goal", "trial", "deploy", "loader"), "it changes the speed, not what is learned"
    ),
    **dict.fromkeys(("saver", "summaries"), "it changes what is written, not what is learned"),
    **dict.fromkeys(("evaluation", "guard"), "trials could not be compared"),
    "task": "trials of different tasks cannot be compared",
}
"""Settings and groups that may not be searched, and why."""
_SEARCHABLE_TASK = "task."  # the settings of the task itself, but not which it is

_MATTERS_WITH: dict[str, dict[str, tuple[Any, ...]]] = {
    "optim.momentum": {"optim.name": ("momentum", "nesterov", "rmsprop", "adam", "adamw")},
    "schedule.power": {"schedule.name": ("polynomial",)},
    "schedule.end": {"schedule.name": ("polynomial", "cosine", "exponential")},
    "schedule.decay": {"schedule.name": ("exponential", "step")},
    "schedule.every": {"schedule.name": ("exponential",)},
    "schedule.staircase": {"schedule.name": ("exponential",)},
    "schedule.at": {"schedule.name": ("step",)},
}


@cache
def _settings() -> list[Setting]:
    return list_settings()


def parse_dimension(key: str, value: object, base: RunConfig) -> Dimension:
    """Return the dimension that `search.KEY=VALUE` describes, checked against the settings of the run."""
    key = type(base.task).aliases.get(key, key)
    require_searchable(key)
    only = conditions(key, base)
    range_ = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if range_ is not None:
        return _range(key, range_, base, only)
    if isinstance(value, str) and ".." in value:
        raise UsageError(
            f"search.{key}={value}: not a range", advice="write LOW..HIGH, LOW..HIGH:log or LOW..HIGH:STEP"
        )
    words = value if isinstance(value, list) else str(value).split(",")
    choices = [_checked(key, _word(word), base, only) for word in words]
    return Dimension(target=key, name=key, choices=tuple(choices), only=only)


def parse_dimensions(tree: Mapping[str, Any], base: RunConfig) -> list[Dimension]:
    """Return a dimension for each setting below `search`, given as a tree."""
    return [parse_dimension(key, value, base) for key, value in flat(dict(tree)).items()]


def require_searchable(key: str) -> None:
    """Raise `UsageError` for a setting that trials must share, or that does not exist."""
    group = key.partition(".")[0]
    if group in _REASONS and not key.startswith(_SEARCHABLE_TASK):
        raise UsageError(
            f"search.{key}: may not be searched: {_REASONS[group]}", advice=f"leave it out, or give {key}="
        )
    known = {setting.key for setting in _settings()} | {
        "task.name",
        "detector.name",
        "net.name",
        "init.kind",
    }
    if key not in known and not key.startswith("optim.phases."):
        raise UnknownSettingError(f"search.{key}", suggest(key, sorted(known)))


def conditions(key: str, base: RunConfig) -> dict[str, tuple[Any, ...]]:
    """Return the values of other settings under which a setting is used; none if it always is."""
    if key in _MATTERS_WITH:
        return dict(_MATTERS_WITH[key])
    choices = [choice for setting in _settings() if setting.key == key for choice in setting.choices]
    groups: dict[str, tuple[Any, ...]] = {}
    for choice in choices:
        group, _, name = choice.partition("=")
        deciding = f"{group}.{'kind' if group == 'init' else 'name'}"
        if deciding in flat(base.tree()) and not deciding.startswith("task."):
            groups[deciding] = (*groups.get(deciding, ()), name)
    return groups


def _range(key: str, match: re.Match[str], base: RunConfig, only: Mapping[str, tuple[Any, ...]]) -> Dimension:
    low, high, how = match.groups()
    ends = [_checked(key, text, base, only) for text in (low, high)]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        raise UsageError(
            f"search.{key}={match.group()}: not a setting of numbers",
            advice=f"list its values: search.{key}=A,B",
        )
    step = None if how in {None, "log"} else float(how)
    if step is not None and not 0 < step <= float(high) - float(low):
        raise UsageError(f"search.{key}={match.group()}: the step {how} does not fit into the range")
    whole = all(isinstance(end, int) for end in ends)
    if whole and step is not None and step != int(step):
        raise UsageError(f"search.{key}={match.group()}: {key} is an integer, and so is its step")
    # The last value of a range with steps is one that steps from the first reach.
    top = float(high) if step is None else float(low) + step * int((float(high) - float(low)) / step + 1e-9)
    return Dimension(
        target=key,
        name=key,
        low=float(low),
        high=top,
        step=step,
        log=how == "log",
        whole=whole,
        only=dict(only),
    )


def _word(word: object) -> object:
    """Return a choice as the command line would read it alone."""
    if not isinstance(word, str):
        return word
    return None if word.strip() in {"none", "null"} else word.strip()


def _checked(key: str, word: object, base: RunConfig, only: Mapping[str, tuple[Any, ...]]) -> Any:
    """Return a value as the settings take it; `UsageError` if they do not."""
    stored = flat(base.tree())
    chosen = {other: values[0] for other, values in only.items() if stored.get(other) not in values}
    try:
        tree: Tree = with_settings(base, {**chosen, key: word}).tree()
    except UnknownSettingError:
        raise UsageError(f"search.{key}: no such setting of this recipe", advice=_where(key)) from None
    except UsageError as error:
        reason = error.message.removeprefix(f"{key}: ")
        raise UsageError(f"search.{key}={word}: {reason}", advice=error.advice) from None
    value = tree_value(tree, key)
    return word if isinstance(value, dict) else value  # a group is chosen by its name


def tree_value(tree: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key, which may be a map."""
    value: Any = tree
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _where(key: str) -> str:
    choices = dict.fromkeys(c for setting in _settings() if setting.key == key for c in setting.choices)
    return f"it exists with {' or '.join(choices)}" if choices else "boxcrew settings lists all"
