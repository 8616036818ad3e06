"""Recurrent networks: for sequences that belong to a class, and for text that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import PADDING
from boxcrew.nets.layers import eval_mode

State = Tensor | tuple[Tensor, Tensor]
"""What a recurrent layer remembers: a GRU its outputs, an LSTM its cells too."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The recurrent layers of a network."""

    kind: Literal["lstm", "gru"] = "lstm"
    hidden: int = 128
    layers: int = 1
    dropout: float = 0.0  # between layers, and of what comes out of the last

    def build(self, num_inputs: int) -> nn.LSTM | nn.GRU:
        between = self.dropout if self.layers > 1 else 0.0
        if self.kind == "lstm":
            return nn.LSTM(num_inputs, self.hidden, self.layers, dropout=between, batch_first=True)
        return nn.GRU(num_inputs, self.hidden, self.layers, dropout=between, batch_first=True)


class SequenceClassifier(nn.Module):
    """What is told apart by its last step together with the mean of all its steps.

    With `bidirectional` a second stack reads every sequence from its end. Padding comes after all that is
    real, in both directions, and changes nothing.
    """

    def __init__(
        self,
        num_inputs: int,
        num_classes: int,
        cells: Cells,
        *,
        alphabet: int | None = None,
        bidirectional: bool = False,
    ) -> None:
        """`num_inputs`: the numbers of a row; of tokens, which an `alphabet` of so many has, those that each
        becomes.
        """
        super().__init__()
        self.embedding = None if alphabet is None else nn.Embedding(alphabet, num_inputs, padding_idx=PADDING)
        self.onward = cells.build(num_inputs)
        self.back = cells.build(num_inputs) if bidirectional else None
        self.dropout = nn.Dropout(cells.dropout)
        self.head = nn.Linear((4 if bidirectional else 2) * cells.hidden, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Rows (B, T, F) of about unit size, or tokens int64 (B, T) -> (B, 2 or 4 * hidden)."""
        if self.embedding is None:
            rows, lengths = inputs, inputs.new_full((len(inputs),), inputs.shape[1], dtype=torch.int64)
        else:
            rows, lengths = self.embedding(inputs), lengths_of(inputs)
        found = _summary(self.onward(rows)[0], lengths)
        if self.back is None:
            return found
        from_end = _summary(self.back(_reversed(rows, lengths))[0], lengths)
        return torch.cat((found, from_end), dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Rows (B, T, F) of about unit size, or tokens int64 (B, T) -> scores before softmax (B, C)."""
        scores: Tensor = self.head(self.dropout(self.features(inputs)))
        return scores


def lengths_of(tokens: Tensor) -> Tensor:
    """(B,) steps up to the last that is not padding; 1 where there is nothing else."""
    places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    return (places * (tokens != PADDING)).amax(dim=1).clamp(min=1)


def _summary(outputs: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, H) -> (B, 2 * H): the last real step, and the mean of all real ones."""
    width = outputs.shape[2]
    last = outputs.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, width)).squeeze(1)
    is_real = torch.arange(outputs.shape[1], device=outputs.device) < lengths[:, None]
    mean = (outputs * is_real[..., None]).sum(dim=1) / lengths[:, None]
    return torch.cat((last, mean), dim=1)


def _reversed(rows: Tensor, lengths: Tensor) -> Tensor:
    """The real steps of each sequence from the last to the first, and then, as before, the padding."""
    num_steps = rows.shape[1]
    places = (lengths[:, None] - 1 - torch.arange(num_steps, device=rows.device)) % num_steps
    return rows.gather(1, places[..., None].expand_as(rows))


class LanguageModel(nn.Module):
    """Foretells each next token from those before it."""

    def __init__(self, alphabet: int, cells: Cells, *, embedding: int = 64, tied: bool = False) -> None:
        """`tied`: a token's score is the product with its embedding (Press and Wolf 2017), which has fewer
        parameters than a layer of scores of its own.
        """
        super().__init__()
        self.embedding = nn.Embedding(alphabet, embedding)
        self.cells = cells.build(embedding)
        self.dropout = nn.Dropout(cells.dropout)
        self.is_tied = tied
        if tied:
            # Vectors of length 1: with those that torch makes, first scores would be far apart.
            nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
            self.head: nn.Module = (
                nn.Identity() if cells.hidden == embedding else nn.Linear(cells.hidden, embedding)
            )
            self.bias = nn.Parameter(torch.zeros(alphabet))
        else:
            self.head = nn.Linear(cells.hidden, alphabet)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 (B, T) -> scores before softmax (B, T, alphabet) of what comes after each."""
        return self.read(tokens)[0]

    def read(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The scores, and what is remembered: given with the tokens that follow, these are read as if all had
        come at once.
        """
        outputs, after = self.cells(self.embedding(tokens), state)
        scores: Tensor = self.head(self.dropout(outputs))
        if self.is_tied:
            # Not a second layer that has the same parameter: it would be saved twice.
            scores = F.linear(scores, self.embedding.weight, self.bias)
        return scores, after

    @torch.no_grad()
    def continue_text(
        self, tokens: Tensor, num: int, *, temperature: float = 1.0, generator: torch.Generator
    ) -> Tensor:
        """int64 (B, num): what may come after each of `tokens` (B, T), T at least 1. Never 0, which
        is padding or a character that is not known.

        The lower the temperature, the likelier the text; at 0 it is always the likeliest token. `generator`
        is on the CPU, wherever the network is: the same numbers are drawn everywhere.
        """
        found, given, state = [tokens[:, :0]], tokens, None
        with eval_mode(self):
            for _ in range(num):
                scores, state = self.read(given, state)
                given = _choose(scores[:, -1], temperature, generator)
                found.append(given)
        return torch.cat(found, dim=1)


def _choose(scores: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """(B, 1)"""
    real = scores.float().clone()
    real[:, PADDING] = -torch.inf
    if temperature == 0:
        return real.argmax(dim=1, keepdim=True)
    chances = (real / temperature).softmax(dim=1).cpu()
    return chances.multinomial(1, generator=generator).to(scores.device)
