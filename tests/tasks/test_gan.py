"""Generators are evaluated on the right data, and settings have their effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from boxcrew.api import run_config
from boxcrew.core.config import parse_words
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Batch
from boxcrew.data.config import DataConfig
from boxcrew.data.loading.workers import Workers
from boxcrew.nets.dcgan import GanLoss
from boxcrew.nets.layers import SingleCellNorm, eval_mode
from boxcrew.tasks import frechet_features, gan
from boxcrew.tasks.base import Task
from boxcrew.tasks.data import EvalOptions, LoaderOptions, OpenOptions
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.gan import GanConfig, GanData, GanEvaluation, GanNet, GanTask, to_pixels
from boxcrew.testing.task_data import written
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.optim import optimizer_of, set_rate
from tests.helpers.made_examples import write_classes


def run_of(*words: str) -> RunConfig:
    """The recipe with settings, as small as can be."""
    return run_config("gan", parse_words(("size=28", "task.width=4", "task.latent=6", *words))[1])


def settings_of(*words: str) -> GanConfig:
    config = run_of(*words).task
    assert isinstance(config, GanConfig)
    return config


def built(*words: str) -> GanTask:
    """Return a task for gray images."""
    torch.manual_seed(0)
    facts = ExampleFacts(classes=(), kind="images", shape=(28, 28, 1), encoding={})
    return GanData.build(settings_of(*words), facts)


@pytest.fixture(autouse=True)
def quick_features(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(frechet_features, "STEPS", 1)
    monkeypatch.setattr(frechet_features, "cache_folder", lambda name: tmp_path / "cache" / name)


def opened(place: Path, *words: str, facts: ExampleFacts | None = None) -> GanData:
    opening = OpenOptions(data=DataConfig(path=str(place)), seed=0)
    return GanData.open(settings_of(*words), opening, facts and written(facts))


def evaluated(task_data: GanData, task: Task, *, batch: int) -> GanEvaluation:
    with eval_mode(task):
        evaluation = task_data.evaluate(
            task, lambda inputs: inputs, EvalOptions(batch=batch, workers=Workers())
        )
    assert isinstance(evaluation, GanEvaluation)
    return evaluation


def test_as_many_pictures_are_judged_whatever_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gan, "NUM_COMPARED", 10)
    write_classes(tmp_path, {"a": 30, "b": 30})
    task_data = opened(tmp_path)
    assert len(task_data.val) == 12
    task = task_data.task()
    small, large = (evaluated(task_data, task, batch=batch) for batch in (4, 16))
    assert small.count == large.count == 10
    assert small.numbers["frechet"] == pytest.approx(large.numbers["frechet"], rel=1e-3)


def test_any_pictures_can_be_compared_with(tmp_path: Path) -> None:
    write_classes(tmp_path / "first", {"photos": 10})
    first = opened(tmp_path / "first" / "photos")
    write_classes(tmp_path / "second", {"a": 6, "b": 6, "c": 6})
    second = opened(tmp_path / "second", facts=first.facts)
    assert second.facts == written(first.facts)
    assert evaluated(second, first.task(), batch=4).count == len(second.val)


def test_classes_need_no_balance(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 40, "b": 2})
    task_data = opened(tmp_path)
    assert "imbalance" not in {
        advice.cause for advice in task_data.advice(task_data.task(), from_scratch=False)
    }


def test_a_penalty_needs_a_critic_that_sees_each_picture_by_itself() -> None:
    with pytest.raises(UsageError, match=r"task\.norm=batch with task\.penalty=10"):
        GanConfig.of({"name": "gan", "penalty": 10, "norm": "batch"})
    for settings in ({"penalty": 10, "norm": "layer"}, {"norm": "batch"}):
        GanConfig.of({"name": "gan", **settings})


def test_the_wasserstein_loss_needs_a_critic_with_bounds() -> None:
    with pytest.raises(UsageError, match=r"task\.loss=wasserstein .* nothing bounds the critic") as raised:
        GanConfig.of({"loss": "wasserstein", "spectral_norm": False})
    assert "task.penalty=10" in raised.value.advice
    for settings in ({"penalty": 10, "spectral_norm": False}, {"spectral_norm": True}):
        GanConfig.of({"loss": "wasserstein", **settings})
    GanConfig.of({"loss": "hinge", "spectral_norm": False})


@pytest.mark.parametrize("setting", ["mixup", "cutmix", "drop_tokens"])
def test_what_a_gan_cannot_do_to_pictures_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=f"augment.{setting}"):
        GanConfig.of({"augment": {setting: 0.5}})
    GanConfig.of({"augment": {"flip": 0.5, "shift": 1, "erase": 0.1, "policy": "randaugment"}})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_pictures_that_are_not_numbers_are_an_error(value: float) -> None:
    made = torch.zeros(2, 1, 4, 4)
    assert set(to_pixels(made).flatten().tolist()) == {128}
    made[1, 0, 2, 3] = value
    with pytest.raises(ModelError, match="not finite") as raised:
        to_pixels(made)
    assert "diverged" in raised.value.advice


def test_a_generator_that_has_diverged_is_not_judged(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 20, "b": 20})
    task_data = opened(tmp_path)
    task = task_data.task()
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        evaluated(task_data, task, batch=4)


def test_pictures_are_made_of_the_same_numbers_each_time(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 15, "b": 15})
    task_data = opened(tmp_path, "task.initializer=he")  # with weights near 0 all pictures would be gray
    task, other = task_data.task(), task_data.task()
    evaluations = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        evaluations.append(evaluated(task_data, task, batch=4))
    assert torch.equal(evaluations[0].made, evaluations[1].made)
    assert evaluations[0].numbers == evaluations[1].numbers
    assert len(np.unique(evaluations[0].made.numpy(), axis=0)) == len(task_data.val) == 6
    assert not torch.equal(evaluated(task_data, other, batch=4).made, evaluations[0].made)


class Flat(nn.Module):
    """Makes pictures of 2 x 2 pixels that have one level, the first of their random numbers."""

    def forward(self, latent: Tensor) -> Tensor:
        return latent[:, :1, None, None].expand(-1, 1, 2, 2)


class Bowl(nn.Module):
    """Gives 3 x + 2 x² to a picture of 2 x 2 pixels that have the level x."""

    def forward(self, pictures: Tensor) -> Tensor:
        return (0.75 * pictures + 0.5 * pictures.square()).sum(dim=(1, 2, 3))


def scored(*levels: float) -> list[float]:
    return [3 * x + 2 * x**2 for x in levels]


def flat_task(*words: str) -> GanTask:
    generator: Any = Flat()
    critic: Any = Bowl()
    return GanTask(GanNet(generator, critic), settings_of(*words))


BYTES = (0, 51, 255)
REAL, MADE, MADE_NEXT, WEIGHTS = (-1.0, -0.6, 1.0), (-1.5, -0.75, 0.4), (0.1, -0.3, 0.9), (0.25, 0.5, 1.0)
"""Levels of the pictures of a batch, and between which of them slopes are looked at."""


def flat_batch() -> Batch:
    return Batch(
        inputs=torch.tensor(BYTES, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 2, 2),
        targets={
            "noise": torch.tensor(MADE)[:, None],
            "other_noise": torch.tensor(MADE_NEXT)[:, None],
            "interpolation_weights": torch.tensor(WEIGHTS),
        },
        keys=("a", "b", "c"),
    )


def terms_of(task: GanTask, phase: str) -> dict[str, float]:
    losses = task(flat_batch(), phase)
    assert losses.weight == 3
    return {name: value.item() for name, value in losses.terms.items()}


def surprise(score: float) -> float:
    """Return the negative log-probability that an image of this score is real."""
    return math.log(1 + math.exp(-score))


FORMULAS: dict[str, tuple[Callable[[float], float], Callable[[float], float], Callable[[float], float]]] = {
    "standard": (surprise, lambda made: surprise(-made), surprise),
    "hinge": (lambda real: max(0, 1 - real), lambda made: max(0, 1 + made), lambda made: -made),
    "wasserstein": (lambda real: -real, lambda made: made, lambda made: -made),
}
"""What the critic loses by a real and by a made picture, and the generator by one it has made."""


def test_there_is_a_formula_for_every_loss() -> None:
    assert set(get_args(GanLoss)) == FORMULAS.keys()


@pytest.mark.parametrize("loss", FORMULAS)
def test_the_loss_is_the_one_that_was_set(loss: str) -> None:
    of_real, of_made, of_next = FORMULAS[loss]
    task = flat_task(f"task.loss={loss}")
    critic = sum(map(of_real, scored(*REAL))) + sum(map(of_made, scored(*MADE)))
    assert terms_of(task, "critic") == pytest.approx({"critic": critic}, rel=1e-5)
    generator = sum(map(of_next, scored(*MADE_NEXT)))
    assert terms_of(task, "generator") == pytest.approx({"generator": generator}, rel=1e-5)


@pytest.mark.parametrize("penalty", [0.5, 10])
def test_a_penalty_is_on_slopes_between_real_and_made_pictures(penalty: float) -> None:
    task = flat_task("task.loss=wasserstein", f"task.penalty={penalty}")
    levels = [
        place * real + (1 - place) * made for place, real, made in zip(WEIGHTS, REAL, MADE, strict=True)
    ]
    lengths = [2 * abs(0.75 + x) for x in levels]  # of four slopes that are equal
    wanted = penalty * sum((length - 1) ** 2 for length in lengths)
    assert terms_of(task, "critic")["penalty"] == pytest.approx(wanted, rel=1e-5)
    assert terms_of(task, "critic").keys() == {"critic", "penalty"}
    assert terms_of(task, "generator").keys() == {"generator"}


@pytest.mark.parametrize("is_wanted", [True, False])
def test_the_critic_has_spectral_norms_where_they_are_wanted(is_wanted: bool) -> None:
    critic = built(f"task.spectral_norm={is_wanted}").net.critic
    layers = [layer for layer in critic.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    norms = [float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), ord=2)) for layer in layers]
    assert len(norms) == 3
    assert [norm == pytest.approx(1, rel=0.05) for norm in norms] == [is_wanted] * 3


@pytest.mark.parametrize(
    ("norm", "wanted"), [("none", []), ("batch", [SingleCellNorm]), ("layer", [nn.GroupNorm])]
)
def test_the_critic_has_the_norms_that_were_set(norm: str, wanted: list[type[nn.Module]]) -> None:
    layers = built(f"task.norm={norm}").net.critic.layers
    assert [type(layer) for layer in layers if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)] == wanted


@pytest.mark.parametrize(
    ("scheme", "of_generator", "of_critic"),
    [
        ("auto", 1 / 18, 1 / (3 * 392)),
        ("he", 2 / 6, 2 / 392),
        ("xavier", 2 / (6 + 392), 2 / (392 + 1)),
        ("orthogonal", 1 / 392, 1 / 392),
        ("normal", 0.02**2, 0.02**2),
    ],
)
def test_weights_begin_as_was_set(scheme: str, of_generator: float, of_critic: float) -> None:
    """Variances are as expected: the generator's first layer maps 6 to 392, the critic's last 392 to 1."""
    net = built(f"task.initializer={scheme}", "task.spectral_norm=false").net
    assert net.generator.first.weight.var().item() == pytest.approx(of_generator, rel=0.15)
    assert net.critic.head.weight.var().item() == pytest.approx(of_critic, rel=0.15)


def first_batch(place: Path, *words: str) -> Batch:
    return next(opened(place, *words).loader(LoaderOptions(batch=8, seed=5)).batches())


def test_real_pictures_are_changed_as_was_set(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 8, "b": 8})
    plain, turned = first_batch(tmp_path), first_batch(tmp_path, "augment.flip=1")
    assert torch.equal(turned.inputs, plain.inputs.flip(-1))
    assert torch.equal(turned.targets["noise"], plain.targets["noise"])
    for word in ("augment.shift=3", "augment.erase=1", "augment.policy=randaugment"):
        is_changed = (first_batch(tmp_path, word).inputs != plain.inputs).flatten(1).any(dim=1)
        assert is_changed.sum() > 4, word


def optimized(optimizer: Optimizer, part: nn.Module) -> dict[str, float]:
    """Return the options that all parameters of one network share; of the decay, those of all weights."""
    own = set(part.parameters())
    groups = [group for group in optimizer.param_groups if own & set(group["params"])]
    assert {parameter for group in groups for parameter in group["params"]} == own
    (rate,) = {group["lr"] for group in groups}
    is_adam = isinstance(optimizer, torch.optim.Adam)
    (momentum,) = {group["betas"][0] if is_adam else group["momentum"] for group in groups}
    (decay,) = {group["weight_decay"] for group in groups if group["params"][0].ndim > 1}
    return {"rate": rate, "momentum": momentum, "weight_decay": decay}


@pytest.mark.parametrize("name", ["adam", "momentum", "rmsprop"])
@pytest.mark.parametrize(("setting", "value"), [("rate", 0.02), ("momentum", 0.8), ("weight_decay", 0.0)])
def test_what_is_set_for_a_phase_is_for_its_parameters_alone(name: str, setting: str, value: float) -> None:
    usual = {"rate": 0.1, "momentum": 0.5, "weight_decay": 0.01}
    words = [f"optim.{key}={number}" for key, number in usual.items()]
    words += [f"optim.phases.critic.{key}={number}" for key, number in {"rate": 0.1, setting: value}.items()]
    task = built()
    optimizer = optimizer_of(task, run_of(f"optim={name}", *words).optim)
    set_rate(optimizer, 0.1)
    assert optimized(optimizer, task.net.critic) == pytest.approx(usual | {setting: value})
    assert optimized(optimizer, task.net.generator) == pytest.approx(usual)
    set_rate(optimizer, 0.05)  # as by a schedule
    assert optimized(optimizer, task.net.critic)["rate"] == pytest.approx(
        (usual | {setting: value})["rate"] / 2
    )


def test_a_phase_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"optim\.phases: judge: this task has critic and generator"):
        optimizer_of(built(), run_of("optim.phases.judge.rate=0.1").optim)
