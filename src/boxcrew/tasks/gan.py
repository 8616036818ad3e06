"""The GAN task: a generator of images and its critic, which are trained in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from boxcrew.core.config import none_is_a_choice
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Batch, Image, Ints, Losses
from boxcrew.data.examples.example_set import Array, InputKind
from boxcrew.data.images.drawing import grid
from boxcrew.data.loading.example_samples import Augmentation, eval_example_batches
from boxcrew.data.transforms.draws import draws
from boxcrew.evaluate.evaluation import Evaluation, EvaluationReport, diverged
from boxcrew.evaluate.frechet import frechet_distance
from boxcrew.nets.dcgan import Critic, GanLoss, GeneratorNet, Norm, critic_loss, generator_loss
from boxcrew.nets.initialization import Scheme, initialize
from boxcrew.nets.network import Network
from boxcrew.nets.regularization import gradient_penalty
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.base import TASKS, Task
from boxcrew.tasks.data import EvalOptions, ImageSheets, ScoreTable, ToDevice
from boxcrew.tasks.drawing import enlarged
from boxcrew.tasks.example_data import ExampleConfig, ExampleData
from boxcrew.tasks.facts import ExampleFacts
from boxcrew.tasks.frechet_features import feature_network

_NOISE, _OTHER_NOISE, _INTERPOLATION = 10, 11, 12  # separate streams of random numbers
NUM_COMPARED = 2000  # real images, and as many generated ones; the distance depends on it
SHEET = 64  # images on a sheet


class GanConfig(ExampleConfig):
    hoisted = ("augment",)
    choices: ClassVar[Mapping[str, str]] = {}
    default_data = "products"
    folder = "gan"
    predicts = "images"
    metrics: ClassVar[Mapping[str, bool]] = {"frechet": False}
    kinds = frozenset[InputKind]({"images"})

    name: Literal["gan"] = "gan"
    loss: GanLoss = "hinge"
    """Loss of generator and critic."""
    penalty: float = Field(default=0.0, ge=0)
    """Weight of the gradient penalty; WGAN-GP has 10 with loss=wasserstein."""
    critic_steps: int = Field(default=1, ge=1)
    """Updates of the critic for each of the generator."""
    latent: int = Field(default=64, ge=1)
    """Random numbers that an image is made from."""
    width: int = Field(default=32, ge=1)
    """Channels of the largest feature maps."""
    spectral_norm: bool = True
    """Normalize the critic's weights by their spectral norm."""
    norm: Annotated[Norm, none_is_a_choice] = "none"
    """Normalization layers of the critic."""
    initializer: Scheme = "normal"
    """Initialization of the weights."""
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.penalty and self.norm == "batch":
            raise UsageError(
                f"task.norm=batch with task.penalty={self.penalty:g}: the penalty is for each image alone",
                advice="task.norm=layer or none, or task.penalty=0",
            )
        # The wasserstein loss grows with the critic's weights.
        if self.loss == "wasserstein" and not self.penalty and not self.spectral_norm:
            unbounded = "task.loss=wasserstein with task.penalty=0 and task.spectral_norm=false"
            advice = "task.penalty=10 (WGAN-GP) or task.spectral_norm=true"
            raise UsageError(f"{unbounded}: nothing bounds the critic", advice=advice)
        self.augment.require_for("images")
        for name in ("mixup", "cutmix"):
            if getattr(self.augment, name):
                problem = "for classifiers only; a gan would learn to generate mixtures"
                raise UsageError(f"augment.{name}: {problem}", advice=f"augment.{name}=0")
        return self

    @property
    def title(self) -> str:
        return f"gan with {self.loss} loss"


class GanNet(Network):
    """A generator with its critic. `forward` is that of the generator."""

    def __init__(self, generator: GeneratorNet, critic: Critic) -> None:
        super().__init__()
        self.generator = generator
        self.critic = critic

    def forward(self, latent: Tensor) -> Tensor:
        """Generate images (B, C, H, W) of -1..1 from (B, latent)."""
        images: Tensor = self.generator(latent)
        return images


class GanTask(Task):
    phases = ("critic", "generator")
    loss_shows_progress = False  # what one network wins, the other loses
    network_name = "net"

    def __init__(self, net: GanNet, config: GanConfig) -> None:
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
            penalty = gradient_penalty(self.net.critic, real, fake, batch.targets["interpolation_weights"])
            terms["penalty"] = self._config.penalty * penalty
        return terms

    def _generator_terms(self, batch: Batch) -> dict[str, Tensor]:
        fake = self.net.generator(batch.targets["other_noise"])
        return {"generator": generator_loss(self._config.loss, self.net.critic(fake))}


def normal(seed: int, epochs: Ints | int, indices: Ints, num: int, *, stream: int) -> Array:
    """Return float32 (n, num) from a standard normal distribution, by the method of Box and Muller."""
    drawn = draws(seed, epochs, indices, 2 * num, stream=stream)
    lengths = np.sqrt(-2 * np.log1p(-drawn[:, :num]))
    values: Array = (lengths * np.cos(2 * np.pi * drawn[:, num:])).astype(np.float32)
    return values


def _with_noise(*, seed: int, epochs: Ints, indices: Ints, latent: int) -> dict[str, Array]:
    """Return the random inputs of each sample, which are the same however a step is split."""
    return {
        "noise": normal(seed, epochs, indices, latent, stream=_NOISE),
        "other_noise": normal(seed, epochs, indices, latent, stream=_OTHER_NOISE),
        "interpolation_weights": draws(seed, epochs, indices, 1, stream=_INTERPOLATION)[:, 0].astype(
            np.float32
        ),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class GanEvaluation(Evaluation):
    """The evaluation of a generator by the Fréchet distance to real images."""

    count: int  # of generated images, and of real ones
    made: Tensor  # uint8 (n, C, H, W), always from the same random numbers

    def sentence(self) -> str:
        return f"Fréchet distance {self.numbers['frechet']:.2f}, {self.count} images"


@TASKS.register("gan")
@dataclass(frozen=True, kw_only=True, eq=False)
class GanData(ExampleData[GanConfig, GanEvaluation]):
    """Square images to imitate; their classes do not matter."""

    config_class = GanConfig
    uses_labels = False

    @classmethod
    def build(cls, config: GanConfig, facts: ExampleFacts) -> GanTask:
        size, width, channels = facts.shape
        if size != width:
            raise UsageError(
                f"the images are {width} x {size} pixels, but a gan needs squares", advice="size=32, 28 or 64"
            )
        generator = GeneratorNet(config.latent, channels, size, width=config.width)
        critic = Critic(
            channels, size, width=config.width, spectral_norm=config.spectral_norm, norm=config.norm
        )
        net = GanNet(generator, critic)
        initialize(net, config.initializer)
        return GanTask(net, config)

    def largest_batch(self, num_samples: int) -> Batch:
        batch = super().largest_batch(num_samples)
        zeros = np.zeros(num_samples, dtype=np.int64)
        extra = _with_noise(seed=0, epochs=zeros, indices=zeros, latent=self.config.latent)
        targets = {name: torch.from_numpy(value) for name, value in extra.items()}
        return Batch(inputs=batch.inputs, targets={**batch.targets, **targets}, keys=batch.keys)

    def augmentation(self) -> Augmentation:
        augment = self.config.augment.augmentation(self.examples.kind)
        return Augmentation(augment=augment.augment, extra=partial(_with_noise, latent=self.config.latent))

    def describe(self, task: Task) -> str:
        listed = ", ".join(
            f"{name} {sum(p.numel() for p in net.parameters()) / 1e6:.2f} M"
            for name, net in task.network.named_children()
        )
        return f"network: {self.config.title}: parameters: {listed}"

    def class_counts(self) -> Mapping[str, int]:
        """Return no counts: a GAN does not learn classes, so they need no balance."""
        return {}

    def evaluate(self, task: Task, move: ToDevice, options: EvalOptions) -> GanEvaluation:
        """Measure the Fréchet distance by features trained on this data: compare it on the same only."""
        start = time.monotonic()
        features = feature_network(self.train, replace(self.facts, classes=self.examples.classes))
        real: list[Array] = []
        generated: list[Array] = []
        skipped: tuple[str, ...] = ()
        sheet: list[Tensor] = []
        generator_seconds, count = 0.0, 0
        compared = self.val.subset(NUM_COMPARED)
        for batch in eval_example_batches(compared, batch=options.batch, workers=options.workers):
            indices = np.arange(count, count + len(batch.inputs))
            noise = normal(0, 0, indices, self.config.latent, stream=_NOISE)
            started = time.perf_counter()
            with torch.inference_mode():
                fake = to_pixels(task.network(move(torch.from_numpy(noise))))
            generator_seconds += time.perf_counter() - started
            real.append(features(batch.inputs))
            generated.append(features(fake))
            count += len(fake)
            skipped += batch.skipped
            if len(sheet) < SHEET:
                sheet += list(fake[: SHEET - len(sheet)])
            if options.progress:
                options.progress(count)
        distance = frechet_distance(np.concatenate(real), np.concatenate(generated))
        return GanEvaluation(
            report=EvaluationReport(numbers={"frechet": distance}, classes=()),
            count=count,
            made=torch.stack(sheet),
            milliseconds={"generator": 1000 * generator_seconds / count},
            seconds=time.monotonic() - start,
            skipped=skipped,
        )

    def render_predictions(self, evaluation: GanEvaluation, num: int) -> ImageSheets:  # noqa: ARG002 - always one sheet
        return {"val/made": [contact_sheet(evaluation.made)]}

    @classmethod
    def scores(cls, report: Mapping[str, Any]) -> ScoreTable:
        distance = f"{report['numbers']['frechet']:.2f}"
        return ScoreTable(columns=("", "Fréchet distance"), rows=(("made", distance),))


def to_pixels(images: Tensor) -> Tensor:
    """Return images of -1..1 as uint8 on the CPU; `ModelError` if they are not finite."""
    if not images.isfinite().all():  # uint8 would hide it
        raise diverged("the pixels of generated images are not finite")
    return ((images.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu()


def contact_sheet(images: Tensor) -> Image:
    """Return uint8 (n, C, H, W) side by side in one image."""
    return grid([enlarged(image, side=64) for image in images], columns=8, gap=4)
