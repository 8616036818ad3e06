"""The six detectors of the classic family on the same photos, backbone and time: about an hour."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.child import boxcrew
from bench.real_data import real_data
from bench.row import Row, skipped

SET = "groceries8_voc"
MINUTES = 6
COMMAND = "python -m bench six_detectors"


def rows() -> list[Row]:
    data = real_data(SET)
    if data is None:
        return [skipped(what=f"six detectors on `{SET}`", reason=f"no {SET}", command=COMMAND)]
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "comparison", time.monotonic()
        words = ("compare", f"data={data}", "detectors=all", f"time={MINUTES}m", f"out={out}")
        subprocess.run(boxcrew(*words), check=True, stdout=sys.stderr)
        return rows_of(json.loads((out / "compare.json").read_text()), time.monotonic() - start)


def rows_of(comparison: dict[str, Any], seconds: float) -> list[Row]:
    """Return a row for each detector of a comparison that took so many seconds."""
    listed = {row["name"]: row for row in comparison["rows"]}
    network = {
        name: row["milliseconds"]["network"] + row["milliseconds"]["post"] for name, row in listed.items()
    }
    total = {name: sum(row["milliseconds"].values()) for name, row in listed.items()}
    aims = {
        "rcnn": (f"network {network['rcnn'] / network['fast_rcnn']:.1f} x Fast R-CNN's", "10 x"),
        "faster_rcnn_mobile": (
            f"{total['faster_rcnn_mobile'] / total['fast_rcnn']:.2f} of Fast R-CNN's time",
            "at most 0.5",
        ),
        "yolo": (f"{total['yolo'] / total['faster_rcnn_mobile']:.2f} of Faster R-CNN's time", "below 1"),
        "ssdlite": (
            f"{total['ssdlite'] / total['faster_rcnn_mobile']:.2f} of Faster R-CNN's time",
            "below 1",
        ),
    }
    return [_row(row, *aims.get(name, ("reported", "")), seconds) for name, row in listed.items()]


def _row(row: dict[str, Any], verdict: str, aim: str, seconds: float) -> Row:
    times = ", ".join(f"{name} {value:.1f}" for name, value in row["milliseconds"].items() if name != "pre")
    stages = ", ".join(f"{name} {value:.0f} s" for name, value in row["stage_seconds"].items())
    return Row(
        what=f"`{row['name']}` on `{SET}` val, PP-LCNetV2, {MINUTES} minutes",
        ours=f"AP50 {row['scores']['AP50']:.3f}, AP {row['scores']['AP']:.3f}; {times} ms an image",
        theirs=f"aim: {aim}" if aim else "",
        verdict=verdict,
        command=COMMAND,
        detail=f"`boxcrew compare data={SET} detectors=all time={MINUTES}m`, {seconds / 60:.0f} minutes "
        f"in all (aim: 75); one run, one seed; {stages}; AP of small, medium and large objects "
        f"{row['scores']['APs']:.3f}, {row['scores']['APm']:.3f}, {row['scores']['APl']:.3f}; "
        f"{row['num_parameters'] / 1e6:.1f} M parameters",
    )
