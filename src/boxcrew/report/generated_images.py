"""The images of a generator as a value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from boxcrew.core.types import Image
from boxcrew.core.units import counted
from boxcrew.data.images.reading import write_image
from boxcrew.tasks.drawing import enlarged
from boxcrew.tasks.gan import contact_sheet


@dataclass(frozen=True, eq=False, repr=False)
class GeneratedImages:
    """Images of a generator; `len` is their number."""

    pixels: Tensor  # uint8 (n, C, H, W), C 1 or 3

    def __len__(self) -> int:
        return len(self.pixels)

    def __repr__(self) -> str:
        height, width = self.pixels.shape[2:]
        return f"GeneratedImages({counted(len(self), 'image')} of {width} x {height})"

    @property
    def images(self) -> list[Image]:
        return [enlarged(image, side=1) for image in self.pixels]

    def save(self, folder: str | Path) -> Path:
        """Write `images/0000.png` and so on, and all of them as `sheet.png`; return the folder."""
        folder = Path(folder)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(self.images):
            write_image(folder / "images" / f"{number:04}.png", image)
        write_image(folder / "sheet.png", contact_sheet(self.pixels))
        return folder
