"""`boxcrew recipes`."""

from __future__ import annotations

import inspect

from boxcrew.cli.output import print_json, screen, settings
from boxcrew.core.config import to_yaml
from boxcrew.recipes import RECIPES, describe


def recipes_command(words: list[str], *, as_json: bool) -> None:
    places, _ = settings(words, positional=1)
    if places:
        _show(places[0], as_json=as_json)
    elif as_json:
        print_json({name: describe(name) for name in RECIPES.names()})
    else:
        width = max(len(name) for name in RECIPES.names())
        for name in RECIPES.names():
            screen(as_json=False).say(f"{name:{width}}  {describe(name)}")


def _show(name: str, *, as_json: bool) -> None:
    recipe = RECIPES.get(name)
    if as_json:
        print_json(recipe().tree())
        return
    say = screen(as_json=False)
    say.say(inspect.cleandoc(recipe.__doc__ or ""), style="bold")
    say.say("")
    say.say(to_yaml(recipe()))
