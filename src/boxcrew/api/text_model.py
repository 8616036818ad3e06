"""A trained language model, which continues texts."""

from __future__ import annotations

import warnings

from boxcrew.api.images import Warn
from boxcrew.api.model import TorchModel
from boxcrew.core.units import counted
from boxcrew.data.examples.alphabet import unknown_characters
from boxcrew.tasks.sequence import language_net_of

_NAMED = 10  # characters that a warning names


class TextModel(TorchModel):
    """A trained language model of characters.
    `TextModel.load("runs/sequence/train").predict("The shop", num=200)`
    """

    predicts = "text"
    default_recipe = "rnn"

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
        network = language_net_of(self.loaded.task)
        unknown = unknown_characters(network.encoding, text)
        if unknown:
            named = ", ".join(map(repr, unknown[:_NAMED])) + (", …" if len(unknown) > _NAMED else "")
            count = f"{counted(len(unknown), 'character')} that the model does not know"
            warn(f"the text has {count}, all read as one unknown character: {named}")
        with self.loaded.deployment:
            return network.continue_text(text, num, temperature=temperature, seed=seed)

    __call__ = predict
