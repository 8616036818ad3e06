"""Train steps with glibc's allocator, set to keep freed memory as in our runs, and with tcmalloc.

`python -m bench.allocator RECIPE` is one measurement in a separate process; `rows` makes them take turns.
"""

from __future__ import annotations

import json
import resource
import sys
from functools import partial
from pathlib import Path

from bench.child import in_child
from bench.row import Row, alternate_figures, skipped
from bench.train_step import SETUPS, measure_ours

COMMAND = "python -m bench allocator"
RECIPE = "ssdlite320_mobilenetv3"
FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
NAMES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")


def rows(*, repeats: int = 7) -> list[Row]:
    what = f"train step `{RECIPE}`, glibc's allocator as our runs set it, against tcmalloc"
    library = next((p for folder in FOLDERS for name in NAMES if (p := Path(folder) / name).is_file()), None)
    if library is None:
        return [skipped(what=what, reason="no tcmalloc", command=COMMAND)]
    sides = [partial(in_child, "allocator", RECIPE, preload=preload) for preload in ("", str(library))]
    ours, theirs = alternate_figures(sides, repeats=repeats)
    cpu, cpu_theirs = (1000 * side["cpu_seconds_per_image"] for side in (ours, theirs))
    return [
        Row(
            what=what,
            ours=f"{ours['images_per_second']:.1f} images/s, {ours['peak_mebibytes']:,.0f} MiB at most",
            theirs=f"{theirs['images_per_second']:.1f} images/s, {theirs['peak_mebibytes']:,.0f} MiB at most",
            verdict=f"{cpu_theirs / cpu:.2f} x (reported)",
            command=COMMAND,
            detail=f"{library.name}; batch {SETUPS[RECIPE].batch}, medians of {repeats} processes each, "
            f"taking turns; ratio of CPU seconds, {cpu:.0f} ms an image against {cpu_theirs:.0f}",
        )
    ]


if __name__ == "__main__":
    figures = measure_ours(SETUPS[sys.argv[1]])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(figures | {"peak_mebibytes": peak}))
