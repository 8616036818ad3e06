"""A trained language model, which continues texts."""

from __future__ import annotations

import warnings
from pathlib import Path

from boxcrew.api.images import Warn
from boxcrew.api.model import Model
from boxcrew.core.errors import UsageError
from boxcrew.core.units import counted
from boxcrew.data.examples.alphabet import unknown_characters
from boxcrew.tasks.sequence import LanguageNetwork, SequenceConfig
from boxcrew.train.run.loading import Loaded, Which

_NAMED = 10  # characters that a warning names


class TextModel(Model):
    """A trained language model of characters.
    `TextModel.load("runs/sequence/train").predict("The shop", num=200)`
    """

    kind = "language"
    default_recipe = "rnn"

    def __init__(self, loaded: Loaded, path: Path, which: Which, device: str) -> None:
        super().__init__(loaded, path, which, device)
        assert isinstance(loaded.task.network, LanguageNetwork)
        self._network = loaded.task.network

    def predict(
        self,
        text: str = "",
        *,
        num: int = 400,
        temperature: float = 0.8,
        seed: int = 0,
        warn: Warn = warnings.warn,
    ) -> str:
        """Return `num` characters that may follow a text, which is not repeated.

        A lower `temperature` gives more probable and less varied text; 0 always the likeliest character.
        `warn` is called if the model does not know all characters of the text.
        """
        if num < 1 or temperature < 0:
            raise UsageError(f"num={num}, temperature={temperature}: num is at least 1, temperature 0")
        unknown = unknown_characters(self._network.meaning, text)
        if unknown:
            named = ", ".join(map(repr, unknown[:_NAMED])) + (", …" if len(unknown) > _NAMED else "")
            warn(
                f"the text has {counted(len(unknown), 'character')} that the model does not know, "
                f"all read as one unknown character: {named}"
            )
        with self._loaded.deployment:
            return self._network.continue_text(text, num, temperature=temperature, seed=seed)

    __call__ = predict

    def _summary(self) -> str:
        assert isinstance(self._loaded.config, SequenceConfig)
        return f"{self._loaded.config.net.name}, {len(self._network.meaning['alphabet'])} characters"
