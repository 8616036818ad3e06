"""Stand-ins for accelerators that are not there."""

from __future__ import annotations

import torch

from boxcrew.deploy.devices import Devices


class FakeDevices(Devices):
    """Devices whose names all stand for the CPU. Strategies go by the names, so they copy as they would with
    real accelerators; their calls are noted.
    """

    def __init__(self) -> None:
        self.used: list[str] = []
        self.chosen: list[str] = []
        self.released: list[str] = []
        self.limited: list[tuple[str, float]] = []

    def find(self, name: str) -> torch.device:
        self.used.append(name)
        return torch.device("cpu")

    def choose(self, name: str) -> None:
        self.chosen.append(name)

    def limit(self, name: str, fraction: float) -> None:
        self.limited.append((name, fraction))

    def release(self, name: str) -> None:
        self.released.append(name)
