"""Keeps a few photos of a run's validation split, with which visitors of its service can try it:
`python -m boxcrew.cli.sample_photos RUN FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from boxcrew.core.config import read_yaml
from boxcrew.core.errors import BoxcrewError
from boxcrew.core.types import Image
from boxcrew.data.config import DataConfig
from boxcrew.data.detection.records import Record
from boxcrew.data.detection.source import open_source
from boxcrew.data.images.reading import encode_image

_NUM = 6
_SIDE = 1280  # longest side in pixels


def write_samples(run: Path, folder: Path) -> None:
    """Write photos with objects, spread over the split, as JPEGs into a new folder. Without its data a run is
    served without samples.
    """
    folder.mkdir(parents=True)
    tree = read_yaml(run / "config.yaml")
    try:
        data = DataConfig.of(tree["data"])
        source = open_source(
            data.path, format=data.format, seed=tree.get("seed", 0), options=data.box_options()
        )
        for number, record in enumerate(_spread(source.split(data.val))):
            content = encode_image(_reduced(source.read(record)), quality=90)
            (folder / f"{number}.jpg").write_bytes(content)
    except (BoxcrewError, KeyError) as error:
        print(f"warning: no sample photos: {error}", file=sys.stderr)


def _spread(records: Sequence[Record]) -> list[Record]:
    """Return a few of the records, far apart in the split."""
    chosen = [record for record in records if len(record.target)] or list(records)
    step = max(1, len(chosen) // _NUM)
    return chosen[::step][:_NUM]


def _reduced(image: Image) -> Image:
    height, width = image.shape[:2]
    scale = _SIDE / max(height, width)
    if scale >= 1:
        return image
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]), Path(sys.argv[2]))
