"""The files of a finished stage: copies of them in the directory of the run, and the COMMIT that ends it."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

from boxcrew.core.errors import ModelError
from boxcrew.core.files import flush, write_atomically, write_json
from boxcrew.train.loop.checkpoint import checksum

COMMIT, FORMAT = "COMMIT", 1
COPIED = ("plan.json", "evaluation.json", "data_report.json")


def _weight_files(folder: Path) -> list[Path]:
    return sorted((folder / "weights").glob("*.safetensors"))


def publish(stage: Path, run: Path) -> None:
    """Copy the weights and records of a stage to the directory of the run."""
    (run / "weights").mkdir(exist_ok=True)
    files = [*_weight_files(stage), *(stage / name for name in COPIED if (stage / name).is_file())]
    for file in files:
        write_atomically(run / file.relative_to(stage), partial(shutil.copyfile, file))
    for leftover in _weight_files(run):
        if not (stage / "weights" / leftover.name).is_file():
            leftover.unlink()  # of an earlier stage


def commit(folder: Path) -> None:
    """Mark a stage as finished, with the checksums of all that the stages after it need."""
    needed = [*_weight_files(folder), folder / "summary.json"]
    sums = {str(file.relative_to(folder)): checksum(file) for file in needed}
    write_json(folder / COMMIT, {"format": FORMAT, "crc32": sums})
    flush(folder)


def verify(folder: Path) -> None:
    """Raise `ModelError` if the weights or the summary of a finished stage are not those that it wrote."""
    advice = (
        f"remove {folder} and the stages after it to repeat them, then: boxcrew resume run={folder.parent}"
    )
    try:
        sums = dict(json.loads((folder / COMMIT).read_text(encoding="utf-8"))["crc32"])
    except (ValueError, KeyError, TypeError):
        raise ModelError(f"{folder / COMMIT}: cut off or damaged", advice=advice) from None
    for name, value in sums.items():
        if not (folder / name).is_file() or checksum(folder / name) != value:
            raise ModelError(
                f"{folder / name}: damaged: its checksum is not the one in {COMMIT}", advice=advice
            )
