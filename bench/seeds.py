"""The accuracy of the default recipe after 3 minutes, over three seeds: about 11 minutes for each set."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench.child import train
from bench.real_data import real_data
from bench.row import Row, skipped

SEEDS = (0, 1, 2)
MINUTES = 3
AIMS = {"groceries8_voc": ("AP50", 0.68), "fashion8_coco": ("AP", 0.43)}
COMMAND = "python -m bench seeds"


def rows() -> list[Row]:
    return [_row(name) for name in AIMS]


def _row(name: str) -> Row:
    what = f"`{name}` val after {MINUTES} minutes, boxcrew starter, mean of {len(SEEDS)} seeds"
    data, (metric, aim) = real_data(name), AIMS[name]
    if data is None:
        return skipped(what=what, reason=f"no {name}", command=COMMAND)
    summaries = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            words = ("starter", f"data={data}", f"time={MINUTES}m", f"seed={seed}")
            summaries.append(train(Path(folder) / "run", *words, "summaries.histograms=false"))
    means = {key: statistics.mean(summary[key] for summary in summaries) for key in ("AP50", "AP")}
    each = ", ".join(f"{summary['AP50']:.3f} / {summary['AP']:.3f}" for summary in summaries)
    return Row(
        what=what,
        ours=f"AP50 {means['AP50']:.3f}, AP {means['AP']:.3f}",
        theirs=f"aim: {metric} {aim}",
        verdict="met" if means[metric] >= aim else "missed",
        command=COMMAND,
        detail=f"the best weights of each run; AP50 / AP of seeds {', '.join(map(str, SEEDS))}: {each}",
    )
