"""Every setting of a run with its type, its default and one line of documentation.

`boxcrew settings` prints the list, and docs/reference/settings.md is made from it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from boxcrew.core.config import ChosenBy, Config
from boxcrew.core.input_size import InputSize
from boxcrew.core.storage.address import Url
from boxcrew.tasks.base import TaskConfig
from boxcrew.train.config import RunConfig

_WORDS = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    Url: "URL",
    ByteSize: "bytes",
    InputSize: "size",
    type(None): "none",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting as a user writes it on the command line."""

    key: str
    type: str
    default: str
    text: str
    choices: tuple[str, ...] = ()  # it exists only with one of these, such as detector=ssd; empty: always


def list_settings() -> list[Setting]:
    """List every setting of a run, of all tasks and networks; what several choices share is listed once."""
    choices: dict[Setting, list[str]] = {}
    for setting, choice in _walk(RunConfig, prefix="", choice=""):
        choices.setdefault(setting, []).extend([choice] if choice else [])
    return [replace(setting, choices=tuple(dict.fromkeys(names))) for setting, names in choices.items()]


def _walk(
    kind: type[Config], *, prefix: str, choice: str, without: str = ""
) -> Iterator[tuple[Setting, str]]:
    """Yield the settings of a group and of all groups in it, each with the choice that it depends on."""
    hoisted = kind.hoisted if issubclass(kind, TaskConfig) else ()
    for name, field in kind.model_fields.items():
        key = name if name in hoisted else prefix + name
        chosen = next((part for part in field.metadata if isinstance(part, ChosenBy)), None)
        if chosen is not None:
            yield from _walk_options(key, chosen, choice)
        elif (
            not field.description
            and isinstance(field.annotation, type)
            and issubclass(field.annotation, Config)
        ):
            yield from _walk(field.annotation, prefix=f"{key}.", choice=choice)
        elif name != without:
            type_text, default = _type_text(field.annotation, field.metadata), _default_text(field)
            yield Setting(key=key, type=type_text, default=default, text=field.description or ""), choice


def _walk_options(key: str, chosen: ChosenBy, choice: str) -> Iterator[tuple[Setting, str]]:
    """Yield the setting that chooses, then the settings of every option."""
    options = list(chosen.options())
    base = chosen.lookup(options[0]).__mro__[1:]
    text = next(
        field.description or ""
        for parent in base
        if issubclass(parent, Config) and (field := parent.model_fields.get(chosen.setting))
    )
    yield Setting(key=key, type=", ".join(options), default=chosen.default, text=text), choice
    for option in options:
        kind, choice = chosen.lookup(option), f"{key}={option}"
        yield from _walk(kind, prefix=f"{key}.", choice=choice, without=chosen.setting)


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is None:
        return _value_text(field.default)
    try:
        return _value_text(field.default_factory())  # type: ignore[call-arg]
    except TypeError:  # it is given the settings before it
        return "depends"


def _value_text(value: object) -> str:
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(next(iter(value.tree().values())) if isinstance(value, Config) else value)


def _type_text(annotation: Any, metadata: list[Any]) -> str:
    """Return a type in words that a user knows, with the limits of a number."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0], [*arguments[1:], *metadata])
    if origin in {Union, types.UnionType}:
        return " or ".join(dict.fromkeys(_type_text(option, metadata) for option in arguments))
    if origin is tuple:
        return f"{_type_text(arguments[0], [])} list"
    if origin in {Literal, dict}:
        return ", ".join(map(str, arguments)) if origin is Literal else "map"
    word = _WORDS.get(annotation, "text")
    if annotation not in {int, float}:
        return word
    signs = {Ge: "≥ {0.ge}", Gt: "> {0.gt}", Le: "≤ {0.le}", Lt: "< {0.lt}"}
    flat = [part for item in metadata for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
    limits = ", ".join(signs[type(part)].format(part) for part in flat if type(part) in signs)
    return f"{word} {limits}".rstrip()


def settings_page() -> str:
    """Return docs/reference/settings.md: a table for each group of settings."""
    lines = [
        "# Settings",
        "",
        "Any setting can be given as `key=value`. `boxcrew settings [PATTERN]` prints this list, and",
        "`boxcrew recipes NAME` shows what a recipe sets. Made by `python tools/write_settings_page.py`.",
    ]
    groups: dict[str, list[Setting]] = {}
    for setting in list_settings():
        groups.setdefault(_group_title(setting), []).append(setting)
    for title, settings in groups.items():
        lines += ["", f"## {title}", "", "| setting | type | default | |", "|---|---|---|---|"]
        lines += [f"| `{s.key}` | {s.type} | `{s.default}` | {s.text} |" for s in settings]
    return "\n".join(lines) + "\n"


def _group_title(setting: Setting) -> str:
    group = setting.key.rpartition(".")[0]
    title = group or (setting.key if setting.choices else "The run")
    return f"{title} ({', '.join(setting.choices)})" if setting.choices else title
