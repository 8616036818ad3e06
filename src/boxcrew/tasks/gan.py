"""Generative adversarial networks: a generator of pictures and its critic, who learn in turns."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from boxcrew.core.config import none_is_a_choice
from boxcrew.core.errors import ModelError, UsageError
from boxcrew.core.types import Batch, Image, Ints, Losses
from boxcrew.data.examples.example_set import Array, Kind
from boxcrew.data.images.drawing import grid
from boxcrew.data.loading.example_samples import Augmentation, eval_example_batches
from boxcrew.data.transforms.draws import draws
from boxcrew.evaluate.evaluation import Evaluation
from boxcrew.evaluate.frechet import Moments, frechet_distance
from boxcrew.nets.dcgan import Critic, Generator, Norm
from boxcrew.nets.filling import Scheme, fill
from boxcrew.nets.gan_losses import GanLoss, critic_loss, generator_loss
from boxcrew.nets.network import Network
from boxcrew.nets.regularise import gradient_penalty
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.base import TASKS, DataFacts, EvalOptions, ImageSheets, ScoreTable, Task, TaskConfig
from boxcrew.tasks.example_data import ExampleConfig, ExampleData
from boxcrew.tasks.example_pictures import enlarged
from boxcrew.tasks.features import feature_network

_NOISE, _OTHER_NOISE, _PLACES = 10, 11, 12  # streams of random numbers
JUDGED = 2000  # pictures that are compared, real and made; distances of fewer are greater
SHEET = 64  # pictures on a sheet


class GanConfig(ExampleConfig):
    hoisted = ("augment",)
    choices: ClassVar[Mapping[str, str]] = {}
    default_data = "products"
    folder = "gan"
    metrics: ClassVar[Mapping[str, bool]] = {"frechet": False}
    kinds = frozenset[Kind]({"pictures"})

    name: Literal["gan"] = "gan"
    loss: GanLoss = "hinge"
    penalty: float = Field(default=0.0, ge=0)  # on the critic's slope: 10 with the wasserstein loss (WGAN-GP)
    critic_steps: int = Field(default=1, ge=1)  # of the critic for each of the generator
    latent: int = Field(default=64, ge=1)  # random numbers that a picture is made from
    width: int = Field(default=32, ge=1)  # channels of the largest maps
    spectral_norm: bool = True  # of the critic
    norm: Annotated[Norm, none_is_a_choice] = "none"  # of the critic
    fill: Scheme = "normal"
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _sees_each_by_itself(self) -> Self:
        if self.penalty and self.norm == "batch":
            raise UsageError(
                f"task.norm=batch with task.penalty={self.penalty:g}: its critic must see each picture alone",
                advice="task.norm=layer or none, or task.penalty=0",
            )
        return self

    @model_validator(mode="after")
    def _has_bounds(self) -> Self:
        """Of the critic: the wasserstein loss has none, and grows with its weights for ever."""
        if self.loss == "wasserstein" and not self.penalty and not self.spectral_norm:
            raise UsageError(
                "task.loss=wasserstein with task.penalty=0 and task.spectral_norm=false: "
                "nothing bounds its critic",
                advice="task.penalty=10 (WGAN-GP) or task.spectral_norm=true",
            )
        return self

    @model_validator(mode="after")
    def _changes_pictures_alone(self) -> Self:
        self.augment.require_for("pictures")
        for name in ("mixup", "cutmix"):
            if getattr(self.augment, name):
                raise UsageError(
                    f"augment.{name}: for networks that tell classes apart; a gan would make mixtures",
                    advice=f"augment.{name}=0",
                )
        return self

    @property
    def title(self) -> str:
        return f"gan with {self.loss} loss"


class Gan(Network):
    """Both networks. What it gives is what the generator makes."""

    def __init__(self, generator: Generator, critic: Critic) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic

    def forward(self, latent: Tensor) -> Tensor:
        """(B, latent) -> pictures (B, C, H, W) -1..1"""
        pictures: Tensor = self.generator(latent)
        return pictures


class GanTask(Task):
    phases = ("critic", "generator")
    loss_tells = False  # what one wins the other loses
    network_name = "net"

    def __init__(self, net: Gan, config: GanConfig) -> None:
        super().__init__()
        self.net = net
        self._config = config

    def phases_of(self, step: int) -> tuple[str, ...]:
        return self.phases if (step + 1) % self._config.critic_steps == 0 else ("critic",)

    @property
    def cycle(self) -> int:
        return self._config.critic_steps

    def learns_in(self, phase: str, name: str) -> bool:
        return name.startswith(f"net.{phase}.")

    def forward(self, batch: Batch, phase: str = "critic") -> Losses:
        terms = self._critic_terms(batch) if phase == "critic" else self._generator_terms(batch)
        return Losses(terms=terms, weight=batch.targets["noise"].new_tensor(float(len(batch))))

    def network_inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        return (batch.targets["noise"],)

    def _critic_terms(self, batch: Batch) -> dict[str, Tensor]:
        real = batch.inputs.float() / 127.5 - 1
        with torch.no_grad():
            fake = self.net.generator(batch.targets["noise"])
        terms = {"critic": critic_loss(self._config.loss, self.net.critic(real), self.net.critic(fake))}
        if self._config.penalty:
            slopes = gradient_penalty(self.net.critic, real, fake, batch.targets["places"])
            terms["penalty"] = self._config.penalty * slopes
        return terms

    def _generator_terms(self, batch: Batch) -> dict[str, Tensor]:
        fake = self.net.generator(batch.targets["other_noise"])
        return {"generator": generator_loss(self._config.loss, self.net.critic(fake))}


def normal(seed: int, epochs: Ints | int, indices: Ints, num: int, *, stream: int) -> Array:
    """float32 (n, num) of a standard normal distribution, by the method of Box and Muller."""
    drawn = draws(seed, epochs, indices, 2 * num, stream=stream)
    lengths = np.sqrt(-2 * np.log1p(-drawn[:, :num]))
    found: Array = (lengths * np.cos(2 * np.pi * drawn[:, num:])).astype(np.float32)
    return found


def _with_noise(*, seed: int, epochs: Ints, indices: Ints, latent: int) -> dict[str, Array]:
    """Random numbers belong to samples, so that they are the same however a step is split."""
    return {
        "noise": normal(seed, epochs, indices, latent, stream=_NOISE),
        "other_noise": normal(seed, epochs, indices, latent, stream=_OTHER_NOISE),
        "places": draws(seed, epochs, indices, 1, stream=_PLACES)[:, 0].astype(np.float32),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class GanEvaluation(Evaluation):
    frechet: float
    count: int  # of pictures made, and of real ones
    made: Tensor  # uint8 (n, C, H, W), always from the same random numbers
    milliseconds: float  # of the generator, for a picture
    seconds: float
    skipped: tuple[str, ...]

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"frechet": self.frechet}

    def sentence(self) -> str:
        return f"Fréchet distance {self.frechet:.2f}, {self.count} pictures"

    def to_json(self) -> dict[str, Any]:
        return {
            "numbers": dict(self.numbers),
            "classes": [],
            "milliseconds": {"generator": self.milliseconds},
        }


@TASKS.register("gan")
@dataclass(frozen=True, kw_only=True, eq=False)
class GanData(ExampleData):
    config_class = GanConfig
    tells_classes = False

    config: GanConfig

    @classmethod
    def build(cls, config: TaskConfig, facts: DataFacts) -> GanTask:
        assert isinstance(config, GanConfig)
        size, width, channels = facts["shape"]
        if size != width:
            raise UsageError(
                f"the pictures are {width} x {size} pixels: a gan makes squares", advice="size=32, 28 or 64"
            )
        generator = Generator(config.latent, channels, size, width=config.width)
        critic = Critic(
            channels, size, width=config.width, spectral_norm=config.spectral_norm, norm=config.norm
        )
        net = Gan(generator, critic)
        fill(net, config.fill)
        return GanTask(net, config)

    def largest_batch(self, num_samples: int) -> Batch:
        batch = super().largest_batch(num_samples)
        none = np.zeros(num_samples, dtype=np.int64)
        extra = _with_noise(seed=0, epochs=none, indices=none, latent=self.config.latent)
        targets = {name: torch.from_numpy(value) for name, value in extra.items()}
        return Batch(inputs=batch.inputs, targets={**batch.targets, **targets}, keys=batch.keys)

    def changes(self) -> Augmentation:
        found = self.config.augment.changes(self.examples.kind)
        return Augmentation(augment=found.augment, extra=partial(_with_noise, latent=self.config.latent))

    def describe(self, task: Task) -> str:
        counts = {
            name: sum(p.numel() for p in part.parameters()) for name, part in task.network.named_children()
        }
        told = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in counts.items())
        return f"network: {self.config.title}: parameters: {told}"

    def class_counts(self) -> Mapping[str, int]:
        """None: it does not learn to tell them apart, so they need no balance."""
        return {}

    def evaluate(self, task: Task, move: Callable[[Tensor], Tensor], options: EvalOptions) -> Evaluation:
        """By features that are learnt from the training examples of this data: only distances that were
        measured with the same data compare.
        """
        begun = time.monotonic()
        look = feature_network(self.train, {**self.facts, "classes": list(self.examples.classes)})
        real: list[Moments] = []
        made: list[Moments] = []
        skipped: tuple[str, ...] = ()
        sheet: list[Tensor] = []
        generator_seconds, count = 0.0, 0
        for batch in eval_example_batches(
            self.val.some(JUDGED), batch=options.batch, workers=options.workers
        ):
            noise = normal(
                0, 0, np.arange(count, count + len(batch.inputs)), self.config.latent, stream=_NOISE
            )
            asked = time.perf_counter()
            with torch.inference_mode():
                fake = to_pixels(task.network(move(torch.from_numpy(noise))))
            generator_seconds += time.perf_counter() - asked
            real.append(Moments.of(look(batch.inputs)))
            made.append(Moments.of(look(fake)))
            count += len(fake)
            skipped += batch.skipped
            if len(sheet) < SHEET:
                sheet += list(fake[: SHEET - len(sheet)])
            if options.progress:
                options.progress(count)
        return GanEvaluation(
            frechet=frechet_distance(reduce(operator.add, real), reduce(operator.add, made)),
            count=count,
            made=torch.stack(sheet),
            milliseconds=1000 * generator_seconds / count,
            seconds=time.monotonic() - begun,
            skipped=skipped,
        )

    def draw_detections(self, evaluation: Evaluation, num: int) -> ImageSheets:  # noqa: ARG002 - a sheet is a sheet
        assert isinstance(evaluation, GanEvaluation)
        return {"val/made": [contact_sheet(evaluation.made)]}

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        return ScoreTable(
            columns=("", "Fréchet distance"), rows=(("made", f"{report['numbers']['frechet']:.2f}"),)
        )


def to_pixels(pictures: Tensor) -> Tensor:
    """-1..1 -> uint8, in main memory."""
    if not pictures.isfinite().all():  # bytes would not show it
        raise ModelError(
            "the generator's pictures are not numbers",
            advice="training has diverged: a lower optim.rate=, or optim.clip=",
        )
    return ((pictures.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu()


def contact_sheet(pictures: Tensor) -> Image:
    """uint8 (n, C, H, W) on one picture."""
    images = [enlarged(picture, side=64) for picture in pictures]
    return grid(images, columns=8, gap=4)
