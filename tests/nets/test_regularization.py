from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from boxcrew.nets.dcgan import Critic
from boxcrew.nets.regularization import gradient_penalty, l1, limit_norms_


def test_l1_is_the_sum_of_absolute_values() -> None:
    vector, matrix = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([[-0.5]], requires_grad=True)
    total = l1(iter([vector, matrix]))
    total.backward()  # type: ignore[no-untyped-call]
    assert total.item() == 3.5
    assert vector.grad is not None
    assert vector.grad.tolist() == [1, -1]


def test_l1_pulls_what_is_useless_to_zero() -> None:
    """Of ten inputs one matters; with a squared penalty the rest would become small, but not nothing."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 10, generator=draw)
    weights = torch.zeros(10, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        (((inputs @ weights - 2 * inputs[:, 3]) ** 2).mean() + 0.5 * l1([weights])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert weights[3] > 1.5
    assert weights.detach().abs().argsort()[-1] == 3
    assert (weights.detach().abs() < 0.03).sum() == 9


def norms_of_units(layer: nn.Module) -> Tensor:
    """By what one unit's weights give: the response to each input that is 1 and all else 0."""
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().square().sum(dim=1).sqrt()
    assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    places = torch.zeros(layer.in_channels, layer.in_channels, 9, 9)
    places[range(layer.in_channels), range(layer.in_channels), 4, 4] = 1
    responses: Tensor = layer(places).detach()
    return responses.square().sum(dim=(0, 2, 3)).sqrt()


def have_learned(module: nn.Module) -> None:
    """As after a step."""
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(6, 8, bias=False),
        nn.Conv2d(4, 6, 3, padding=1, bias=False),
        nn.Conv2d(4, 6, 3, padding=1, groups=2, bias=False),
        nn.ConvTranspose2d(4, 6, 3, padding=1, bias=False),
        nn.ConvTranspose2d(4, 6, 3, padding=1, groups=2, bias=False),
    ],
    ids=str,
)
def test_norms_hold_afterwards_and_directions_stay(layer: nn.Linear | nn.Conv2d | nn.ConvTranspose2d) -> None:
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    before, norms = layer.weight.detach().clone(), norms_of_units(layer)
    limit = float(norms.median())
    have_learned(layer)
    limit_norms_(layer, limit)
    torch.testing.assert_close(norms_of_units(layer), norms.clamp(max=limit))
    assert (layer.weight * before >= 0).all()
    once = layer.weight.detach().clone()
    limit_norms_(layer, limit)
    torch.testing.assert_close(layer.weight.detach(), once)


def test_norms_of_all_layers_are_limited_but_of_nothing_else() -> None:
    network = nn.Sequential(nn.LSTM(5, 4), nn.Linear(4, 3), nn.LayerNorm(3), nn.Embedding(3, 4))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(7)
    have_learned(network)
    limit_norms_(network, 2.0)
    for name, value in network.named_parameters():
        if value.ndim == 2 and not name.startswith("3."):
            torch.testing.assert_close(value.norm(dim=1), torch.full((len(value),), 2.0))
        else:
            assert (value == 7).all(), name


def test_what_has_not_learned_is_left_alone() -> None:
    """A backbone that is frozen, say."""
    network = nn.Sequential(nn.LSTM(5, 4), nn.Linear(4, 3), nn.Conv2d(2, 2, 3), nn.ConvTranspose2d(2, 2, 3))
    before = [parameter.detach().clone() for parameter in network.parameters()]
    have_learned(network[1])
    limit_norms_(network, 1e-3)
    changed = [not torch.equal(*pair) for pair in zip(network.parameters(), before, strict=True)]
    names = [name for name, _ in network.named_parameters()]
    assert [name for name, is_changed in zip(names, changed, strict=True) if is_changed] == ["1.weight"]


def test_a_unit_without_weights_stays_nothing() -> None:
    layer = nn.Linear(3, 2)
    nn.init.zeros_(layer.weight)
    have_learned(layer)
    limit_norms_(layer, 1.0)
    assert (layer.weight == 0).all()


def test_spectral_norms_are_left_alone() -> None:
    critic = Critic(1, 28, width=4, spectral_norm=True)
    before = [parameter.detach().clone() for parameter in critic.parameters()]
    have_learned(critic)
    limit_norms_(critic, 1e-3)
    assert all(map(torch.equal, critic.parameters(), before))


def test_a_gradient_penalty_is_the_closed_form_of_a_linear_critic() -> None:
    direction = torch.randn(12, dtype=torch.float64, requires_grad=True)
    real, fake = torch.randn(2, 5, 3, 2, 2, dtype=torch.float64)
    penalty = gradient_penalty(lambda x: x.flatten(1) @ direction, real, fake, torch.rand(5).double())
    length = direction.detach().norm()
    torch.testing.assert_close(penalty.detach(), 5 * (length - 1) ** 2)
    penalty.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(direction.grad, 5 * 2 * (length - 1) * direction.detach() / length)


def test_it_looks_at_places_between_real_and_made() -> None:
    """The slope of half a square is the place itself."""
    real, fake = torch.full((3, 4), 5.0), torch.full((3, 4), 1.0)
    weights = torch.tensor([0.0, 0.25, 1.0])
    penalty = gradient_penalty(lambda x: x.square().sum(dim=1) / 2, real, fake, weights)
    lengths = (weights * 5 + (1 - weights) * 1) * 2
    torch.testing.assert_close(penalty, (lengths - 1).square().sum())


@pytest.mark.parametrize("spectral_norm", [False, True])
def test_penalties_of_parts_add_up(spectral_norm: bool) -> None:
    critic = Critic(1, 28, width=4, norm="layer", spectral_norm=spectral_norm)
    real, fake, weights = torch.randn(6, 1, 28, 28), torch.randn(6, 1, 28, 28), torch.rand(6)

    def gradients(parts: list[slice]) -> list[Tensor]:
        critic.zero_grad()
        for part in parts:
            gradient_penalty(critic, real[part], fake[part], weights[part]).backward()  # type: ignore[no-untyped-call]
        return [parameter.grad.clone() for parameter in critic.parameters() if parameter.grad is not None]

    whole = gradients([slice(None)])
    assert any(gradient.abs().sum() > 0 for gradient in whole)
    for gradient, other in zip(whole, gradients([slice(0, 2), slice(2, 6)]), strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)


def test_a_gradient_penalty_changes_no_argument_and_leaves_no_gradient_in_them() -> None:
    critic = Critic(1, 28, width=4)
    real, fake = torch.randn(2, 1, 28, 28), torch.randn(2, 1, 28, 28, requires_grad=True)
    before = real.clone(), fake.detach().clone()
    gradient_penalty(critic, real, fake, torch.rand(2)).backward()  # type: ignore[no-untyped-call]
    assert torch.equal(real, before[0])
    assert torch.equal(fake.detach(), before[1])
    assert fake.grad is None
