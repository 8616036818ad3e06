"""The augmentation of training examples: settings, checks and the random changes themselves."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from boxcrew.core.config import Config, none_is_a_choice
from boxcrew.core.errors import UsageError
from boxcrew.core.types import Ints
from boxcrew.data.examples.example_set import Array, InputKind
from boxcrew.data.loading.example_samples import Augmentation, Mix
from boxcrew.data.transforms.draws import draws
from boxcrew.data.transforms.flip_shift_erase import FlipShiftErase
from boxcrew.data.transforms.mixing import Mixed, cutmix, mixup
from boxcrew.data.transforms.policies import Policy, PolicyName
from boxcrew.data.transforms.tokens import drop_tokens

Probability = Annotated[float, Field(ge=0, le=1)]
_PICTURES, _POLICY, _TOKENS = range(3)  # separate streams of random numbers

_NOUNS: dict[InputKind, str] = {"images": "images", "numbers": "tables", "tokens": "texts"}
_KINDS_OF: dict[str, tuple[InputKind, ...]] = {
    "flip": ("images",),
    "shift": ("images",),
    "erase": ("images",),
    "policy": ("images",),
    "drop_tokens": ("tokens",),
    "mixup": ("images", "numbers"),
    "cutmix": ("images", "numbers"),
}


class AugmentConfig(Config):
    """The settings of augmentation. Each works on some kinds of data only."""

    group = "augment"

    flip: Probability = 0.0
    """Probability that an image is mirrored."""
    shift: int = Field(default=0, ge=0)
    """Largest shift of an image in pixels."""
    erase: Probability = 0.0
    """Probability that a rectangle of an image is erased."""
    policy: Annotated[PolicyName | Literal["none"], none_is_a_choice] = "none"
    """Augmentation policy of torchvision for images."""
    drop_tokens: Probability = 0.0
    """Probability that a character of a text becomes unknown."""
    mixup: float = Field(default=0.0, ge=0)
    """Alpha of mixup; 0 turns it off."""
    cutmix: float = Field(default=0.0, ge=0)
    """Alpha of CutMix; 0 turns it off."""

    def require_for(self, kind: InputKind) -> None:
        """Raise `UsageError` for all settings that would do nothing to this kind of data."""
        default = AugmentConfig()
        changed = [name for name in _KINDS_OF if getattr(self, name) != getattr(default, name)]
        idle = [name for name in changed if kind not in _KINDS_OF[name]]
        if idle:
            kinds = dict.fromkeys(supported for name in idle for supported in _KINDS_OF[name])
            nouns = " and ".join(_NOUNS[supported] for supported in kinds)
            settings = " ".join(f"{self.key(name)}={getattr(self, name)}" for name in idle)
            advice = " ".join(f"{self.key(name)}={getattr(default, name) or 0}" for name in idle)
            raise UsageError(f"{settings}: for {nouns}; the data holds {_NOUNS[kind]}", advice=advice)

    def augmentation(self, kind: InputKind, unknown: int = 0) -> Augmentation:
        """Return the changes to training examples. `unknown`: the token of unknown characters."""
        change: partial[Array] | None = None
        if kind == "images":
            plain = FlipShiftErase(flip=self.flip, shift=self.shift, erase=self.erase)
            policy = None if self.policy == "none" else Policy(self.policy)
            if policy or plain != FlipShiftErase():
                change = partial(_change_images, plain=plain, policy=policy)
        elif kind == "tokens" and self.drop_tokens > 0:
            change = partial(_hide_tokens, p=self.drop_tokens, unknown=unknown)
        return Augmentation(augment=change, mix=self._mix() if kind != "tokens" else None)

    def _mix(self) -> Mix | None:
        by_mixup, by_cutmix = partial(mixup, alpha=self.mixup), partial(cutmix, alpha=self.cutmix)
        if self.mixup and self.cutmix:
            return partial(_either, first=by_mixup, second=by_cutmix)
        if self.mixup:
            return by_mixup
        return by_cutmix if self.cutmix else None


def _either(inputs: Tensor, labels: Tensor, *, rng: np.random.Generator, first: Mix, second: Mix) -> Mixed:
    """Mix a step's samples in one of two ways, with equal probability."""
    return (first if rng.random() < 0.5 else second)(inputs, labels, rng=rng)


def _change_images(
    inputs: Array, *, seed: int, epochs: Ints, indices: Ints, plain: FlipShiftErase, policy: Policy | None
) -> Array:
    if policy is not None:
        inputs = policy(inputs, draws(seed, epochs, indices, policy.num_draws, stream=_POLICY))
    return plain(inputs, draws(seed, epochs, indices, plain.num_draws, stream=_PICTURES))


def _hide_tokens(inputs: Array, *, seed: int, epochs: Ints, indices: Ints, p: float, unknown: int) -> Array:
    drawn = draws(seed, epochs, indices, inputs.shape[1], stream=_TOKENS)
    return drop_tokens(inputs, drawn, p=p, mask=unknown)
