"""How a generator is judged, and on which data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import ModelError, UsageError
from boxcrew.data.config import DataConfig
from boxcrew.data.workers import Workers
from boxcrew.nets.layers import eval_mode
from boxcrew.tasks import features, gan
from boxcrew.tasks.base import Exam, Facts, Opening, Task
from boxcrew.tasks.gan import GanConfig, GanEvaluation, Generation, to_pixels
from boxcrew.testing.made_examples import write_classes
from boxcrew.testing.subjects import written

CONFIG = GanConfig.of({"name": "gan", "size": 28, "width": 4, "latent": 6})


@pytest.fixture(autouse=True)
def quick_features(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(features, "STEPS", 1)
    monkeypatch.setattr(features, "cache_folder", lambda name: tmp_path / "cache" / name)


def opened(place: Path, facts: Facts | None = None) -> Generation:
    opening = Opening(data=DataConfig(path=str(place)), seed=0, facts=facts and written(facts))
    return Generation.open(CONFIG, opening)


def examined(subject: Generation, task: Task, *, batch: int) -> GanEvaluation:
    with eval_mode(task):
        found = subject.examine(task, lambda inputs: inputs, Exam(batch=batch, workers=Workers()))
    assert isinstance(found, GanEvaluation)
    return found


def test_as_many_pictures_are_judged_whatever_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gan, "JUDGED", 10)
    write_classes(tmp_path, {"a": 30, "b": 30})
    subject = opened(tmp_path)
    assert len(subject.val) == 12
    task = subject.task()
    small, large = (examined(subject, task, batch=batch) for batch in (4, 16))
    assert small.count == large.count == 10
    assert small.frechet == pytest.approx(large.frechet, rel=1e-3)


def test_any_pictures_can_be_compared_with(tmp_path: Path) -> None:
    write_classes(tmp_path / "first", {"photos": 10})
    first = opened(tmp_path / "first" / "photos")
    write_classes(tmp_path / "second", {"a": 6, "b": 6, "c": 6})
    second = opened(tmp_path / "second", first.facts)
    assert second.facts == written(first.facts)
    assert examined(second, first.task(), batch=4).count == len(second.val)


def test_classes_need_no_balance(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 40, "b": 2})
    subject = opened(tmp_path)
    assert "imbalance" not in {one.cause for one in subject.advice(subject.task(), from_scratch=False)}


def test_a_penalty_needs_a_critic_that_sees_each_picture_by_itself() -> None:
    with pytest.raises(UsageError, match=r"task\.norm=batch with task\.penalty=10"):
        GanConfig.of({"name": "gan", "penalty": 10, "norm": "batch"})
    for settings in ({"penalty": 10, "norm": "layer"}, {"norm": "batch"}):
        GanConfig.of({"name": "gan", **settings})


def test_the_wasserstein_loss_needs_a_critic_with_bounds() -> None:
    with pytest.raises(UsageError, match=r"task\.loss=wasserstein .* nothing bounds its critic") as raised:
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
    with pytest.raises(ModelError, match="not numbers") as raised:
        to_pixels(made)
    assert "diverged" in raised.value.advice


def test_a_generator_that_has_diverged_is_not_judged(tmp_path: Path) -> None:
    write_classes(tmp_path, {"a": 20, "b": 20})
    subject = opened(tmp_path)
    task = subject.task()
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(ModelError, match="not numbers"):
        examined(subject, task, batch=4)
