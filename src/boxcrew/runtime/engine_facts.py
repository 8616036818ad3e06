"""Facts about what computes a network, for people and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from boxcrew.core.units import counted


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """The library that computes a network, and the numbers that it really computes with."""

    name: str  # such as onnxruntime
    precision: str  # such as fp32
    device: str
    threads: int
    measured: Mapping[str, float] = field(default_factory=dict)  # by engine=auto: ms of a photo in each

    def sentence(self) -> str:
        threads = f", {counted(self.threads, 'thread')}" if self.device == "cpu" else ""
        figures = ", ".join(f"{name} {ms:.1f} ms" for name, ms in self.measured.items())
        why = f"; fastest in a measurement of two seconds: {figures} a photo" if figures else ""
        return f"engine: {self.name} in {self.precision} on {self.device}{threads}{why}"

    def tree(self) -> dict[str, Any]:
        return asdict(self)
