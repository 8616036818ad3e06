"""Usual GPUs as their makers' data sheets describe them, for machines that are not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boxcrew.hardware.machine import Speeds

COPY_SHARE = 0.9  # of a data sheet's bandwidth is reached by copying


@dataclass(frozen=True, kw_only=True)
class Card:
    """One model of GPU. Numbers are those of data sheets: dense matrices, sums in float32."""

    gigabytes: int
    float32: float  # 10^12 operations per second
    half: float  # the same with float16, and with bfloat16 where there is any
    bandwidth: float  # 10^9 bytes per second of its memory
    bf16: bool = True

    @property
    def memory_bytes(self) -> int:
        return self.gigabytes * 2**30

    def speeds(self) -> Speeds:
        rates = dict.fromkeys(("gemm", "convolution", "convolution_channels_last"), self.float32 * 1e3)
        from_host = 25e9 if self.bf16 else 12e9  # 16 lanes of PCIe 4, or 3 for older cards
        copied = COPY_SHARE * self.bandwidth * 1e9
        return Speeds(**rates, half=self.half * 1e3, copy_bytes=copied, from_host_bytes=from_host)


CARDS: Mapping[str, Card] = {
    "H200": Card(gigabytes=141, float32=66.9, half=989, bandwidth=4800),
    "H100": Card(gigabytes=80, float32=66.9, half=989, bandwidth=3350),
    "A100-80GB": Card(gigabytes=80, float32=19.5, half=312, bandwidth=2039),
    "A100-40GB": Card(gigabytes=40, float32=19.5, half=312, bandwidth=1555),
    "V100-32GB": Card(gigabytes=32, float32=15.7, half=125, bandwidth=900, bf16=False),
    "V100-16GB": Card(gigabytes=16, float32=15.7, half=125, bandwidth=900, bf16=False),
    "L40S": Card(gigabytes=48, float32=91.6, half=362, bandwidth=864),
    "L4": Card(gigabytes=24, float32=30.3, half=121, bandwidth=300),
    "A40": Card(gigabytes=48, float32=37.4, half=149.7, bandwidth=696),
    "A30": Card(gigabytes=24, float32=10.3, half=165, bandwidth=933),
    "A10": Card(gigabytes=24, float32=31.2, half=125, bandwidth=600),
    "T4": Card(gigabytes=16, float32=8.1, half=65, bandwidth=320, bf16=False),
    "RTX-A6000": Card(gigabytes=48, float32=38.7, half=154.8, bandwidth=768),
    "RTX-5090": Card(gigabytes=32, float32=104.8, half=209.5, bandwidth=1792),
    "RTX-4090": Card(gigabytes=24, float32=82.6, half=165.2, bandwidth=1008),
    "RTX-4080": Card(gigabytes=16, float32=48.7, half=97.5, bandwidth=717),
    "RTX-4070": Card(gigabytes=12, float32=29.1, half=58.3, bandwidth=504),
    "RTX-3090": Card(gigabytes=24, float32=35.6, half=71, bandwidth=936),
    "RTX-3080": Card(gigabytes=10, float32=29.8, half=59.5, bandwidth=760),
    "RTX-3060": Card(gigabytes=12, float32=12.7, half=25.5, bandwidth=360),
    "RTX-2080Ti": Card(gigabytes=11, float32=13.4, half=53.8, bandwidth=616, bf16=False),
}
"""Cards by the names that `assume=` takes."""


def find_card(text: str) -> tuple[str, Card] | None:
    """Return a card and its name, however spaced and capitalized; None if there is none of this name."""
    wanted = _plain(text)
    return next(((name, card) for name, card in CARDS.items() if _plain(name) == wanted), None)


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())
