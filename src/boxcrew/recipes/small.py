"""Recipes for classic networks on small data: perceptron, CNN, RNN and GAN."""

from __future__ import annotations

from boxcrew.recipes import RECIPES
from boxcrew.tasks.augmentation import AugmentConfig
from boxcrew.tasks.classification import ClassificationConfig
from boxcrew.tasks.gan import GanConfig
from boxcrew.tasks.net_configs import CnnConfig, FcConfig, RnnConfig
from boxcrew.tasks.sequence import SequenceConfig
from boxcrew.train.config import EvaluationConfig, RunConfig
from boxcrew.train.loop.optim import OptimConfig, PhaseConfig
from boxcrew.train.loop.schedule import ScheduleConfig

_EVALUATION = EvaluationConfig(batch=256)


@RECIPES.register("fc")
def fc() -> RunConfig:
    """A multilayer perceptron: classifies images or rows of a table

    boxcrew train fc data=PATH
    On 2 CPU cores: Fashion-MNIST in a minute (time=1m epochs=none), accuracy 0.90 on test.
    """
    return RunConfig(
        task=ClassificationConfig(net=FcConfig(dropout=0.2)),
        epochs=12,
        batch=128,
        optim=OptimConfig(name="adamw", rate=1e-3, weight_decay=0.01, reference_batch=128),
        schedule=ScheduleConfig(name="cosine", warmup=0.05),
        evaluation=_EVALUATION,
    )


@RECIPES.register("cnn")
def cnn() -> RunConfig:
    """A small convolutional network: classifies images

    boxcrew train cnn data=PATH
    On 2 CPU cores: Fashion-MNIST in 6 minutes (time=6m epochs=none), accuracy 0.935 on test.
    """
    return RunConfig(
        task=ClassificationConfig(
            net=CnnConfig(dropout=0.1), augment=AugmentConfig(flip=0.5, shift=2), smoothing=0.05
        ),
        epochs=8,
        batch=128,
        optim=OptimConfig(name="nesterov", rate=0.1, weight_decay=5e-4, reference_batch=128),
        schedule=ScheduleConfig(name="cosine", warmup=0.2),
        evaluation=_EVALUATION,
    )


@RECIPES.register("rnn")
def rnn() -> RunConfig:
    """A recurrent network: classifies texts, or images read row by row, and continues running text

    boxcrew train rnn data=PATH
    On 2 CPU cores: tinyshakespeare in 15 minutes (time=15m epochs=none), 1.53 nats a character on its last
    tenth; Fashion-MNIST row by row in 5 minutes, accuracy 0.907 on test.
    """
    return RunConfig(
        task=SequenceConfig(net=RnnConfig(hidden=256)),
        epochs=10,
        batch=64,
        optim=OptimConfig(name="adamw", rate=3e-3, weight_decay=0.01, clip=1.0, reference_batch=64),
        schedule=ScheduleConfig(name="cosine", warmup=0.05),
        evaluation=_EVALUATION,
    )


@RECIPES.register("gan")
def gan() -> RunConfig:
    """A DCGAN: generates images like those of the data set

    boxcrew train gan data=PATH
    On 2 CPU cores: Fashion-MNIST in 10 minutes (time=10m epochs=none), a Fréchet distance of 5.6 where an
    untrained one has 170.
    The WGAN-GP: task.loss=wasserstein task.penalty=10 task.critic_steps=5 task.spectral_norm=false
    """
    return RunConfig(
        task=GanConfig(),
        epochs=20,
        batch=64,
        optim=OptimConfig(
            name="adam",
            rate=2e-4,
            momentum=0.5,
            weight_decay=0.0,
            ema=0.995,
            reference_batch=64,
            phases={"critic": PhaseConfig(rate=4e-4)},
        ),
        schedule=ScheduleConfig(name="fixed", warmup=0.0),
        evaluation=EvaluationConfig(batch=256, every_epochs=1),
    )
