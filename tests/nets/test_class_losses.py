from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from boxcrew.nets.class_losses import Summed, cross_entropy, focal_loss, mixed_loss

WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 4.0])


def example(num: int = 12) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(num)
    return 3 * torch.randn(num, 4, generator=draw), torch.randint(4, (num,), generator=draw)


def mean(summed: Summed) -> Tensor:
    return summed[0] / summed[1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_entropy_is_torchs(smoothing: float, weights: Tensor | None) -> None:
    scores, labels = example()
    loss_and_weight = cross_entropy(scores, labels, smoothing=smoothing, class_weights=weights)
    wanted = F.cross_entropy(scores, labels, weight=weights, label_smoothing=smoothing)
    torch.testing.assert_close(mean(loss_and_weight), wanted)
    assert float(loss_and_weight[1]) == (12 if weights is None else float(WEIGHTS[labels].sum()))


def test_smoothing_makes_certainty_cost() -> None:
    sure = torch.tensor([[100.0, 0, 0, 0]])
    label = torch.tensor([0])
    assert cross_entropy(sure, label)[0] == 0
    assert cross_entropy(sure, label, smoothing=0.1)[0] == pytest.approx(0.1 * 0.75 * 100)


def test_focal_loss_without_gamma_is_cross_entropy() -> None:
    scores, labels = example()
    for weights in (None, WEIGHTS):
        loss_and_weight = focal_loss(scores, labels, gamma=0.0, class_weights=weights)
        torch.testing.assert_close(loss_and_weight, cross_entropy(scores, labels, class_weights=weights))


def test_focal_loss_is_its_formula() -> None:
    scores, labels = example()
    true = scores.softmax(dim=1)[range(12), labels]
    wanted = (-((1 - true) ** 2) * true.log() * WEIGHTS[labels]).sum()
    loss_sum, weight = focal_loss(scores, labels, gamma=2.0, class_weights=WEIGHTS)
    torch.testing.assert_close(loss_sum, wanted)
    torch.testing.assert_close(weight, WEIGHTS[labels].sum())


def test_focal_loss_looks_at_what_is_doubtful() -> None:
    sure, doubtful = torch.tensor([[4.0, 0]]), torch.tensor([[0.2, 0]])
    label = torch.tensor([0])
    ratios = [
        float(focal_loss(doubtful, label, gamma=g)[0] / focal_loss(sure, label, gamma=g)[0])
        for g in (0, 1, 2)
    ]
    assert ratios[0] * 20 < ratios[1] < ratios[2] / 20


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_gradients_of_focal_loss_are_finite_where_all_is_certain(gamma: float) -> None:
    scores = torch.tensor([[500.0, 0], [0, 500.0]], requires_grad=True)
    focal_loss(scores, torch.tensor([0, 0]), gamma=gamma)[0].backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad[1, 1] == pytest.approx(1)


LOSSES: list[Callable[..., Summed]] = [
    partial(cross_entropy, smoothing=0.1, class_weights=WEIGHTS),
    partial(cross_entropy),
    partial(focal_loss, gamma=2.0),
    partial(focal_loss, gamma=2.0, class_weights=WEIGHTS),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_parts_add_up(loss: Callable[..., Summed]) -> None:
    scores, labels = example()
    shares = torch.linspace(0, 1, 12)
    whole = loss(scores, labels, shares)
    parts = [loss(scores[a:b], labels[a:b], shares[a:b]) for a, b in ((0, 1), (1, 9), (9, 12))]
    torch.testing.assert_close(whole, tuple(map(sum, zip(*parts, strict=True))))


@pytest.mark.parametrize("loss", LOSSES)
def test_every_step_of_a_sequence_has_a_label(loss: Callable[..., Summed]) -> None:
    scores, labels = example()
    loss_and_weight = loss(scores.reshape(3, 4, 4), labels.reshape(3, 4))
    torch.testing.assert_close(loss_and_weight, loss(scores, labels))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_mixed_sample_is_partly_the_one_and_partly_the_other(loss: Callable[..., Summed]) -> None:
    scores, labels = example()
    share = torch.rand(12, generator=torch.Generator().manual_seed(0))
    targets = {"labels": labels, "other_labels": labels.flip(0), "mix_weights": share}
    total, weight = mixed_loss(partial(loss, scores), targets)
    terms = [
        (share[i] * loss(scores[i : i + 1], labels[i : i + 1])[k])
        + (1 - share[i]) * loss(scores[i : i + 1], labels.flip(0)[i : i + 1])[k]
        for k in (0, 1)
        for i in range(12)
    ]
    torch.testing.assert_close(total, torch.stack(terms[:12]).sum())
    torch.testing.assert_close(weight, torch.stack(terms[12:]).sum())


def test_mixing_is_cross_entropy_with_soft_targets() -> None:
    scores, labels = example()
    share = torch.rand(12, generator=torch.Generator().manual_seed(0))
    targets = {"labels": labels, "other_labels": labels.flip(0), "mix_weights": share}
    soft = share[:, None] * F.one_hot(labels, 4) + (1 - share)[:, None] * F.one_hot(labels.flip(0), 4)
    loss_and_weight = mixed_loss(partial(cross_entropy, scores), targets)
    torch.testing.assert_close(mean(loss_and_weight), F.cross_entropy(scores, soft))
    torch.testing.assert_close(loss_and_weight[1], torch.tensor(12.0))


def test_half_precision_is_summed_in_full() -> None:
    scores = torch.zeros(100_000, 2, dtype=torch.bfloat16)
    total, weight = cross_entropy(scores, torch.zeros(100_000, dtype=torch.int64))
    assert float(mean((total, weight))) == pytest.approx(math.log(2), rel=1e-4)
    assert float(weight) == 100_000
