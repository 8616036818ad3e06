"""The command `boxcrew predict` with a language model: continue a text."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from boxcrew.cli.output import make_screen, print_json
from boxcrew.core.config import Config, Tree
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted
from boxcrew.data.examples.alphabet import unknown_characters
from boxcrew.data.folders import read_utf8
from boxcrew.tasks.sequence import LanguageNetwork
from boxcrew.train.output.screen import Screen
from boxcrew.train.run.loading import Which, load_task

_NAMED = 10  # characters that a warning names


class PredictTextConfig(Config):
    run: Path
    text: str = ""  # to be continued
    source: Path | None = None  # a file with the text
    num: int = Field(default=400, ge=1)  # of characters
    temperature: float = Field(default=0.8, ge=0)  # lower: more probable and less varied
    seed: int = Field(default=0, ge=0)
    weights: Which = "best"
    device: str = "auto"


def predict_text(tree: Tree, *, as_json: bool) -> None:
    config = PredictTextConfig.of(tree)
    if config.text and config.source is not None:
        raise UsageError("text= and source=: only one of them can be given", advice="leave one out")
    loaded = load_task(config.run, which=config.weights, device=config.device)
    net = loaded.task.network
    assert isinstance(net, LanguageNetwork)
    text = config.text if config.source is None else read_utf8(config.source)
    screen = make_screen(as_json=as_json)
    _warn_of_unknown(unknown_characters(net.meaning, text), screen)
    with loaded.deployment:
        more = net.continue_text(text, config.num, temperature=config.temperature, seed=config.seed)
    screen.say(f"{text}{more}")
    if as_json:
        print_json({"text": text, "continued": more})


def _warn_of_unknown(characters: str, screen: Screen) -> None:
    if characters:
        named = ", ".join(map(repr, characters[:_NAMED])) + (", …" if len(characters) > _NAMED else "")
        noun = counted(len(characters), "character")
        screen.warn(
            f"the text has {noun} that the model does not know, all read as one unknown character: {named}"
        )
