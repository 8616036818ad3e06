"""The command `boxcrew recipes`: the list of recipes, or the settings of one."""

from __future__ import annotations

import inspect

from boxcrew.cli.output import make_screen, parse_settings, print_json
from boxcrew.core.config import to_yaml
from boxcrew.recipes import RECIPES, describe


def recipes_command(words: list[str], *, as_json: bool) -> None:
    names, _ = parse_settings(words, positional=1)
    if names:
        _show(names[0], as_json=as_json)
    elif as_json:
        print_json({name: describe(name) for name in RECIPES.names()})
    else:
        width = max(len(name) for name in RECIPES.names())
        for name in RECIPES.names():
            make_screen(as_json=False).say(f"{name:{width}}  {describe(name)}")


def _show(name: str, *, as_json: bool) -> None:
    recipe = RECIPES.get(name)
    if as_json:
        print_json(recipe().tree())
        return
    screen = make_screen(as_json=False)
    screen.say(inspect.cleandoc(recipe.__doc__ or ""), style="bold")
    screen.say("")
    screen.say(to_yaml(recipe()))
