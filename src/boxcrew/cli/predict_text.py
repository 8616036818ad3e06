"""`boxcrew predict` with a language model: goes on with a text."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from boxcrew.cli.output import print_json, screen
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted
from boxcrew.data.examples.alphabet import unknown_characters
from boxcrew.data.examples.plain_text import read_utf8
from boxcrew.tasks.sequence import LanguageNetwork
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import Which, load_task

_NAMED = 10  # characters that a warning names


class PredictConfig(Config):
    run: Path
    text: str = ""  # that is to be continued
    source: Path | None = None  # a file that it stands in
    num: int = Field(default=400, ge=1)  # characters
    temperature: float = Field(default=0.8, ge=0)  # the lower, the likelier and the duller
    seed: int = Field(default=0, ge=0)
    weights: Which = "best"
    device: str = "auto"


def predict_text(tree: Tree, *, as_json: bool) -> None:
    config = PredictConfig.of(tree)
    if config.text and config.source is not None:
        raise UsageError("text= and source=: one text can be continued", advice="leave one of them out")
    loaded = load_task(config.run, which=config.weights, device=config.device)
    net = loaded.task.network
    assert isinstance(net, LanguageNetwork)
    text = config.text if config.source is None else read_utf8(config.source)
    say = screen(as_json=as_json)
    _warn_of_unknown(unknown_characters(net.meaning, text), say)
    with loaded.deployment:
        more = net.continue_text(text, config.num, temperature=config.temperature, seed=config.seed)
    say.say(f"{text}{more}")
    if as_json:
        print_json({"text": text, "continued": more})


def _warn_of_unknown(characters: str, say: Screen) -> None:
    if characters:
        named = ", ".join(map(repr, characters[:_NAMED])) + (", …" if len(characters) > _NAMED else "")
        noun = counted(len(characters), "character")
        say.warn(f"the text has {noun} that the model has not learnt, all read as one unknown: {named}")
