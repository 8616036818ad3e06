"""The devices of this machine, by their names in plans.

All that strategies ask of hardware goes through here, so that tests can put the CPU's memory in the place of
accelerators that are not there.
"""

from __future__ import annotations

import torch


class Devices:
    """Access to torch's devices by name, such as `cpu` or `cuda:1`."""

    def find(self, name: str) -> torch.device:
        return torch.device(name)

    def choose(self, name: str) -> None:
        """Make an accelerator torch's current one, which it uses where no index is given."""
        if self._is_current_kind(name):
            torch.accelerator.set_device_index(self.find(name))

    def limit(self, name: str, fraction: float) -> None:
        """Limit this process to a fraction of an accelerator's memory from now on, where torch can."""
        device = self.find(name)
        set_fraction = getattr(getattr(torch, device.type, None), "set_per_process_memory_fraction", None)
        if set_fraction is not None:
            set_fraction(fraction, *([device] if device.type != "mps" else []))  # of which there is only one

    def release(self, name: str) -> None:
        """Return memory that was freed, but kept by torch, to the device."""
        if self._is_current_kind(name):
            torch.accelerator.empty_cache()

    def _is_current_kind(self, name: str) -> bool:
        """Return whether `torch.accelerator` stands for devices of this kind here."""
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator is not None and accelerator.type == self.find(name).type
