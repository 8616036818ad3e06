"""Exported networks in place of those of torch, so that every evaluation and prediction works with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from boxcrew.nets.network import Network
from boxcrew.nets.recurrent import LanguageModel, State
from boxcrew.runtime.exported import Exported

INPUT, STATE = "inputs", ("hidden", "cells")
"""The names of the inputs of networks that are not detectors: what they read, and the state of a language
model.
"""

_LEAST = 1e-30  # a probability of 0 has no logarithm


class ExportedNetwork(Network):
    """An exported network: a detector, which its predictor computes, a classifier or a generator."""

    def __init__(self, exported: Exported) -> None:
        info = exported.info
        super().__init__(info.classes, info.facts.get("encoding"))
        self.exported = exported

    def forward(self, inputs: Tensor, **_: Any) -> Tensor:
        """Return what the torch network would: log-probabilities of a classifier, or pixels of -1..1 of a
        generator.
        """
        (output,) = _run(self.exported, {INPUT: inputs})
        if self.exported.info.predicts == "classes":
            return output.clamp(min=_LEAST).log()
        return output.float() / 127.5 - 1


class ExportedLanguageModel(LanguageModel):
    """An exported language model, which gets and gives the state of its recurrent layers."""

    def __init__(self, exported: Exported) -> None:
        nn.Module.__init__(self)  # it has no layers
        self.exported = exported
        self.is_tied = False

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def read(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        if state is None:
            state = self._first_state(tokens.shape[0])
        states = state if isinstance(state, tuple) else (state,)
        named = dict(zip(STATE, states, strict=False))
        scores, *after = _run(self.exported, {INPUT: tokens, **named})
        return scores, (after[0], after[1]) if len(after) > 1 else after[0]

    def _first_state(self, num: int) -> State:
        """Return the zeros that a text begins with."""
        net = self.exported.info.task["net"]
        zeros = torch.zeros(net["layers"], num, net["hidden"])
        return (zeros, zeros) if net["cells"] == "lstm" else zeros


def _run(exported: Exported, inputs: dict[str, Tensor]) -> list[Tensor]:
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in inputs.items()}
    return [torch.from_numpy(output) for output in exported.engine.run(arrays)]
