"""Settings: typed, frozen models, made from command-line words or a YAML file.

A dotted key names a setting (`optim.rate`). A group may have a `shorthand`: the field that a value given
to the group itself sets, so that `data=photos` means `data.path=photos`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from boxcrew.core.errors import UnknownSettingError, UsageError, first_line
from boxcrew.core.registry import suggest
from boxcrew.core.storage.address import Url, refuse_url

Tree = dict[str, Any]
"""Settings as nested dictionaries, not yet validated."""

_SHORT = ""  # the key under which a tree keeps a value given to a group itself


class Config(BaseModel):
    """A group of settings. An unknown key or a wrong value is a `UsageError` that names its full key."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    group: ClassVar[str] = ""  # the key of this group; empty at the top
    shorthand: ClassVar[str | None] = None

    def __init_subclass__(cls, *, group: str = "", shorthand: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.group, cls.shorthand = group or cls.group, shorthand or cls.shorthand

    @classmethod
    def of(cls, value: object) -> Self:
        """Validate a tree (or pass on an instance): the only way settings from outside become a Config."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise UsageError(_describe(error, cls.group)) from None

    @classmethod
    def read(cls, path: Path, *, setting: str) -> Self:
        """Read the JSON file that the user named with `setting`; errors name the setting and the file."""
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise UsageError(f"{setting}={path}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(f"{setting}={path}: not JSON: {error}") from None
        except UsageError as error:
            raise UsageError(f"{setting}={path}: {error.message}", advice=error.advice) from None

    @classmethod
    def key(cls, name: str) -> str:
        return f"{cls.group}.{name}" if cls.group else name

    def tree(self) -> Tree:
        """Return the settings as plain values for YAML and JSON; `of` makes an equal Config of them."""
        return self.model_dump(mode="json")

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: object) -> object:
        if isinstance(value, Config):
            return value
        settings = dict(value) if isinstance(value, Mapping) else {_SHORT: value}
        if _SHORT in settings:
            if cls.shorthand is None:
                example = cls.key(next(iter(cls.model_fields)))
                raise UsageError(
                    f"{cls.group}: a group of settings; set one of them, for example {example}=…"
                )
            settings = _without_short(settings, cls.group, cls.shorthand)
        for name, setting in settings.items():
            if name not in cls.model_fields:
                hint = suggest(str(name), list(cls.model_fields))
                raise UnknownSettingError(cls.key(str(name)), hint)
            if _is_path(cls.model_fields[name]):
                refuse_url(cls.key(name), setting, known=_takes_url(cls.model_fields[name]))
            if isinstance(setting, dict) and setting.keys() == {_SHORT}:  # perhaps not a group, but a map
                settings[name] = setting[_SHORT]
        return settings


class NamesLocation:
    """An annotation that marks a text as the name of a file or directory, as a `Path` is by its type, or as
    the URL of one.
    """


def _is_path(field: FieldInfo) -> bool:
    return Path in (field.annotation, *get_args(field.annotation)) or NamesLocation in field.metadata


def _takes_url(field: FieldInfo) -> bool:
    return NamesLocation in field.metadata or Url in get_args(field.annotation)


def _describe(error: ValidationError, group: str) -> str:
    """Return pydantic's errors about the first wrong setting as one line: key, what is wrong, the value."""
    errors = error.errors(include_url=False)
    first, key = errors[0], _dotted_key(errors[0]["loc"], group)
    if first["type"] == "missing" and isinstance(first["input"], Mapping):
        return f"{key}: must be given"
    # A union has an error for each of its branches: the value is none of them.
    same = (detail["msg"] for detail in errors if _dotted_key(detail["loc"], group) == key)
    messages = (message.removeprefix("Value error, ").partition(", unable to parse")[0] for message in same)
    problem = " or ".join(dict.fromkeys(message[:1].lower() + message[1:] for message in messages))
    return f"{key or 'settings'}: {problem}, got {first['input']!r}"


def _dotted_key(loc: tuple[int | str, ...], group: str) -> str:
    """Return the setting's key. The end of `loc` may name a branch of a union ("int", "literal['auto']")."""
    types = {"int", "float", "str", "bool", "tuple", "none"}
    names = [name for name in map(str, loc) if name.replace("_", "").isalnum() and name not in types]
    return ".".join([group, *names] if group else names)


@dataclass(frozen=True, kw_only=True)
class ChosenBy:
    """Annotation of a field whose class depends on one of its own settings, such as `detector.name`."""

    setting: str
    default: str
    lookup: Callable[[str], type[Config]]
    options: Callable[[], Iterable[str]]  # the values of the setting, to list them

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._choose, handler(source))

    def _choose(self, value: object) -> object:
        if isinstance(value, Config):
            return value
        settings = dict(value) if isinstance(value, Mapping) else {_SHORT: value}
        tree = _without_short(settings, self.lookup(self.default).group, self.setting)
        return self.lookup(str(tree.get(self.setting, self.default))).of(tree)


def _without_short(settings: Tree, group: str, setting: str) -> Tree:
    """Return settings in which a value given to the group itself is that of the `setting` it stands for."""
    if _SHORT not in settings:
        return settings
    if setting in settings:
        values = f"{group}={settings[_SHORT]} and {group}.{setting}={settings[setting]}"
        raise UsageError(f"{values}: the same setting twice", advice="give it once")
    return {setting if name == _SHORT else name: value for name, value in settings.items()}


commas = BeforeValidator(
    lambda value: tuple(item.strip() for item in value.split(",")) if isinstance(value, str) else value
)
"""Validator for a tuple that the command line gives as `a,b`."""

Names = Annotated[tuple[str, ...], commas]

none_is_a_choice = BeforeValidator(lambda value: "none" if value is None else value)
"""Validator for a setting with a choice "none": the command line reads `none` as no value at all."""


def parse_words(words: Sequence[str], *, verbatim: Collection[str] = ()) -> tuple[list[str], Tree]:
    """Split command-line words into positional ones and settings, of which each may be given once.

    `key=value`, `--key=value` and `--key value` mean the same; `--flag` alone means `flag=true`. Dashes
    inside a key are read as underscores. The values of `verbatim` keys stay as they were written.
    """
    positional: list[str] = []
    settings: Tree = {}
    for key, text in split_words(words):
        if key is None:
            positional.append(_positional(text))
        else:
            put(settings, key, text if key in verbatim else _value(text, key))
    return positional, settings


def split_words(words: Sequence[str]) -> Iterator[tuple[str | None, str]]:
    """Yield the key of each setting with its text, and None with each positional word, in their order."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and not equals:
            yield None, word
            continue
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") and "=" not in rest[0] else "true"
        if not name:
            raise UsageError(f"{word}: not a setting", advice="write key=value, without spaces")
        yield name.replace("-", "_"), value


def _positional(word: str) -> str:
    if word.startswith(("-", "–", "—", "−")):  # the long ones come from word processors
        raise UsageError(f"{word}: not understood", advice="write key=value, or --key value")
    return word


def _value(text: str, key: str) -> object:
    """Read lists, maps and null as YAML; all else stays text, which the setting's type converts."""
    if not text.strip():
        raise UsageError(f"{key}=: the value is missing", advice=f"write {key}=VALUE, without spaces")
    if text.startswith(("[", "{")):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            problem, advice = f"{key}={text}: not a list or map", "write [a, b] or {a: 1}, in quotes"
            raise UsageError(problem, advice=advice) from None
    if text.startswith("~/"):  # not every shell expands it after a =
        return str(Path(text).expanduser())
    return None if text in {"null", "none", "None", "~"} else text


def put(tree: Tree, key: str, value: object) -> None:
    """Set a dotted key in a tree that the caller owns; `UsageError` if it is set already."""
    *groups, last = key.split(".")
    for group in groups:
        inner = tree.setdefault(group, {})
        if not isinstance(inner, dict):
            inner = tree[group] = {_SHORT: inner}
        tree = inner
    tree[last] = _joined(tree[last], value, key) if last in tree else value


def _joined(old: object, new: object, key: str) -> object:
    """Return what was given for one key twice: a group's settings and its short value, or two parts of it."""
    if not isinstance(old, dict) and not isinstance(new, dict):
        raise UsageError(f"{key}: given twice, {old} and {new}", advice="give it once")
    joined: Tree = dict(old) if isinstance(old, dict) else {_SHORT: old}
    for name, value in (new if isinstance(new, dict) else {_SHORT: new}).items():
        inner = f"{key}.{name}" if name else key
        joined[name] = _joined(joined[name], value, inner) if name in joined else value
    return joined


def lift(tree: Tree, group: str, names: Collection[str]) -> Tree:
    """Return the tree with the settings `names` of a group at the top, as commands without groups have them.
    A value given to the group itself stays.
    """
    inner = tree.get(group)
    if not isinstance(inner, dict):
        return tree
    lifted = {name: value for name, value in inner.items() if name in names}
    rest = {name: value for name, value in inner.items() if name not in names}
    outer = {name: value for name, value in tree.items() if name != group}
    if rest:
        outer[group] = rest[_SHORT] if rest.keys() == {_SHORT} else rest
    return lifted | outer


def merge(base: Tree, change: Tree, *, choices: Mapping[str, str]) -> Tree:
    """Return `base` with the settings of `change` put over it; neither is changed.

    `choices` maps a group to the setting that decides what its other settings mean (`detector` -> `name`).
    If `change` chooses differently, the group starts afresh instead of keeping settings that belong to the
    other choice.
    """
    merged = copy.deepcopy(base)
    for name, value in change.items():
        old, choice = merged.get(name), choices.get(name)
        if not isinstance(old, dict):
            merged[name] = copy.deepcopy(value)
            continue
        new = dict(value) if isinstance(value, Mapping) else {_SHORT: value}
        if choice:
            new = _without_short(new, name, choice)
        afresh = choice in new and new[choice] != old.get(choice)
        merged[name] = copy.deepcopy(new) if afresh else merge(old, new, choices={})
    return merged


def read_yaml(path: Path) -> Tree:
    """Read a settings file; `UsageError` if it is not one."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not YAML: {first_line(error)}") from None
    if not isinstance(tree, dict):
        raise UsageError(f"{path}: holds no settings", advice="write one 'key: value' a line")
    return tree


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(config.tree(), sort_keys=False, allow_unicode=True)
