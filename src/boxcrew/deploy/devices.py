"""The devices of this machine by the names that plans have for them: all that strategies ask of hardware goes
through here, so that tests can put memory of the CPU in the place of accelerators that are not there.
"""

from __future__ import annotations

import torch


class Devices:
    def find(self, name: str) -> torch.device:
        return torch.device(name)

    def choose(self, name: str) -> None:
        """Of several accelerators, the one that torch takes where nobody says which."""
        if self._is_torchs_own(name):
            torch.accelerator.set_device_index(self.find(name))

    def limit(self, name: str, fraction: float) -> None:
        """Of an accelerator's memory, for all that this process does there from now on."""
        device = self.find(name)
        set_fraction = getattr(getattr(torch, device.type, None), "set_per_process_memory_fraction", None)
        if set_fraction is None:
            return  # none that could be told
        if device.type == "mps":  # there is only one
            set_fraction(fraction)
        else:
            set_fraction(fraction, device)

    def release(self, name: str) -> None:
        """Gives memory that was freed, but kept, back to the device."""
        if self._is_torchs_own(name):
            torch.accelerator.empty_cache()

    def _is_torchs_own(self, name: str) -> bool:
        """Whether it is of the kind of accelerator that torch's common interface is for here."""
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator is not None and accelerator.type == self.find(name).type
