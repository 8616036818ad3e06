from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from boxcrew.core.types import PADDING
from boxcrew.nets.recurrent import Cells, LanguageModel, SequenceClassifier, lengths_of

KINDS: list[Any] = ["lstm", "gru"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_rows_become_scores(kind: Any, bidirectional: bool) -> None:
    network = SequenceClassifier(28, 10, Cells(kind=kind, hidden=6, layers=2), bidirectional=bidirectional)
    rows = torch.randn(3, 28, 28)
    assert network(rows).shape == (3, 10)
    assert network.features(rows).shape == (3, 24 if bidirectional else 12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_changes_nothing(kind: Any, bidirectional: bool) -> None:
    network = SequenceClassifier(
        5, 4, Cells(kind=kind, hidden=6, layers=2), num_tokens=9, bidirectional=bidirectional
    )
    tokens = torch.randint(1, 9, (3, 7), generator=seeded())
    padded = F.pad(tokens, (0, 5), value=PADDING)
    torch.testing.assert_close(network(padded), network(tokens))
    # And in the company of longer ones.
    longer = torch.randint(1, 9, (1, 12), generator=seeded(1))
    torch.testing.assert_close(network(torch.cat((longer, padded)))[1:], network(tokens))


def test_rows_read_backwards_are_those_of_the_reversed_sequence() -> None:
    network = SequenceClassifier(5, 4, Cells(hidden=6), bidirectional=True)
    assert network.back is not None
    network.back.load_state_dict(network.onward.state_dict())
    rows = torch.randn(2, 7, 5)
    onward, back = network.features(rows).chunk(2, dim=1)
    other_onward, other_back = network.features(rows.flip(1)).chunk(2, dim=1)
    torch.testing.assert_close(onward, other_back)
    torch.testing.assert_close(back, other_onward)
    assert not torch.allclose(onward, back)


def test_features_are_the_last_step_and_the_mean() -> None:
    network = SequenceClassifier(5, 4, Cells(hidden=6))
    rows = torch.randn(2, 7, 5)
    steps = network.onward(rows)[0]
    torch.testing.assert_close(network.features(rows), torch.cat((steps[:, -1], steps.mean(dim=1)), dim=1))


def test_lengths_go_to_the_last_real_token() -> None:
    tokens = torch.tensor([[3, 0, 2, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    assert lengths_of(tokens).tolist() == [3, 1, 4, 1]


def test_nothing_but_padding_stays_finite() -> None:
    network = SequenceClassifier(5, 4, Cells(hidden=6), num_tokens=9, bidirectional=True)
    assert network(torch.zeros(2, 7, dtype=torch.int64)).isfinite().all()


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_is_on_in_training_alone(layers: int) -> None:
    network = SequenceClassifier(5, 4, Cells(hidden=32, layers=layers, dropout=0.5))
    rows = torch.randn(2, 7, 5)
    assert not torch.equal(network(rows), network(rows))
    network.eval()
    assert torch.equal(network(rows), network(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_which_token_came_first_is_learned(kind: Any) -> None:
    tokens = torch.randint(1, 5, (128, 6), generator=seeded())
    labels = tokens[:, 0] - 1
    torch.manual_seed(0)
    network = SequenceClassifier(8, 4, Cells(kind=kind, hidden=16), num_tokens=5)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.03)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(network(tokens), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (network(tokens).argmax(dim=1) == labels).float().mean() > 0.95


def language_model(kind: Any = "lstm", *, tied: bool = False) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(11, Cells(kind=kind, hidden=16, layers=2, dropout=0.2), embedding=8, tied=tied)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [False, True])
def test_what_was_read_before_is_carried_on(kind: Any, tied: bool) -> None:
    model = language_model(kind, tied=tied).eval()
    tokens = torch.randint(1, 11, (2, 9), generator=seeded())
    at_once = model(tokens)
    assert at_once.shape == (2, 9, 11)
    first, state = model.read(tokens[:, :4])
    then, _ = model.read(tokens[:, 4:], state)
    torch.testing.assert_close(torch.cat((first, then), dim=1), at_once)


def test_scores_depend_on_what_came_before_alone() -> None:
    model = language_model().eval()
    tokens = torch.randint(1, 11, (1, 9), generator=seeded())
    changed = tokens.clone()
    changed[0, 5] = tokens[0, 5] % 10 + 1
    differs = (model(tokens) != model(changed)).any(dim=2)[0]
    assert differs.tolist() == [False] * 5 + [True] * 4


def test_a_tied_model_scores_with_its_embedding() -> None:
    model, loose = language_model(tied=True), language_model()
    saved = model.state_dict()
    assert [name for name, value in saved.items() if value.shape[:1] == (11,)] == ["bias", "embedding.weight"]
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in loose.parameters())
    model(torch.ones(1, 2, dtype=torch.int64))[..., 7].sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert set(gradient.abs().sum(dim=1).nonzero().flatten().tolist()) == {1, 7}  # read, and scored


def test_equal_widths_need_no_layer_between() -> None:
    model = LanguageModel(11, Cells(hidden=8), embedding=8, tied=True)
    assert model(torch.ones(1, 2, dtype=torch.int64)).shape == (1, 2, 11)
    assert not [name for name in model.state_dict() if name.startswith("head")]


@pytest.mark.parametrize("tied", [False, True])
def test_first_scores_are_near_each_other(tied: bool) -> None:
    model = LanguageModel(64, Cells(hidden=256), embedding=256, tied=tied)
    assert model(torch.randint(1, 64, (4, 30), generator=seeded())).std() < 1


def test_text_is_continued_by_the_generator_alone() -> None:
    model = language_model().train()
    start = torch.tensor([[1, 2, 3], [4, 5, 6]])
    state = torch.get_rng_state()
    texts = [model.continue_text(start, 30, generator=seeded(seed)) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)  # no dropout
    assert all(module.training for module in model.modules())
    assert texts[0].shape == (2, 30)
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])
    assert (texts[0] != PADDING).all()
    assert model.continue_text(start, 0, generator=seeded()).shape == (2, 0)


def test_a_temperature_of_zero_takes_the_likeliest() -> None:
    model = language_model().eval()
    text = torch.tensor([[1, 2, 3]])
    continuation = model.continue_text(text, 6, temperature=0, generator=seeded())
    for _ in range(6):  # all of it read again for each token
        scores = model(text)[:, -1]
        scores[:, PADDING] = -torch.inf
        text = torch.cat((text, scores.argmax(dim=1, keepdim=True)), dim=1)
    assert torch.equal(continuation, text[:, 3:])


def test_tokens_come_as_often_as_the_scores_say() -> None:
    model = language_model().eval()
    start = torch.tensor([[1, 2, 3]])
    scores = model(start)[0, -1, 1:]
    many = model.continue_text(start.expand(20_000, -1), 1, temperature=0.1, generator=seeded())
    shares = torch.bincount(many.flatten(), minlength=11)[1:] / 20_000
    torch.testing.assert_close(shares, (scores / 0.1).softmax(dim=0), atol=0.015, rtol=0)


def test_a_text_that_repeats_is_learned_by_heart() -> None:
    text = torch.tensor([[1, 2, 3, 4, 2, 1, 5, 3] * 4])
    model = language_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    continuation = model.continue_text(text[:, :16], 16, temperature=0, generator=seeded())
    assert torch.equal(continuation, text[:, 16:])
