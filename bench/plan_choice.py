"""The chosen plan against all others of a sweep, and against naive defaults: 25 minutes on two cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.child import boxcrew
from bench.planner import PHOTOS, SSD
from bench.row import Row, alternate
from bench.small_set import write_small

SWEPT = {"ssd300_vgg16": (2,), "ssd512_vgg16": (1,)}  # batches of the sweep; of others 8 and 16
COMMAND = "python -m bench plan_choice"


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        data = write_small("shelf", Path(name) / "data", num_train=PHOTOS, num_val=2)
        return [_choice(recipe, data) for recipe in SSD]


def _choice(recipe: str, data: Path) -> Row:
    """Compare the chosen plan of a recipe with all plans of a sweep, and with naive defaults."""
    batches = SWEPT.get(recipe, (8, 16))
    chosen = {batch: _chosen(recipe, data, batch) for batch in batches}
    named = [str(word) for batch, mode in chosen.items() for word in (*mode, batch)]
    swept = _child(recipe, data, ",".join(map(str, batches)), "sweep", *named)
    print(json.dumps(swept), file=sys.stderr)
    ratios, details = [], []
    for batch in batches:
        same_batch = [plan for plan in swept if plan["batch"] == batch]
        own = next(plan for plan in same_batch if _mode(plan) == chosen[batch])
        best = max(same_batch, key=lambda plan: float(plan["images_per_second"]))
        ratios.append(own["images_per_second"] / best["images_per_second"])
        details.append(
            f"batch {batch}: {own['images_per_second']:.2f} of {best['images_per_second']:.2f} images/s"
        )
    batch = batches[-1]
    naive, ours = alternate(
        [lambda: _naive(recipe, data, batch), lambda: _ours(recipe, data, batch, chosen[batch])], repeats=2
    )
    near, gain = min(ratios) >= 0.95, ours / naive
    return Row(
        what=f"the plan chosen for `{recipe}`",
        ours=f"{min(ratios):.1%} of the best of {len(swept)} that were measured; "
        f"{gain:.2f} x the images/s of naive defaults",
        theirs="aim: 95 %, 1.5 x",
        verdict=f"{'met' if near else 'missed'}, {'met' if gain >= 1.5 else 'missed'}",
        command=COMMAND,
        detail=f"threads x workers x memory format x batch, real loader and steps; {'; '.join(details)}; "
        "naive: contiguous, 2 threads, 8 workers, OpenMP and the allocator with their defaults, "
        f"batch {batch}: {naive:.2f} images/s against {ours:.2f}, means of 2 processes each, taking turns",
    )


def _mode(plan: dict[str, Any]) -> tuple[str, int, int]:
    return plan["format"], plan["threads"], plan["workers"]


def _chosen(recipe: str, data: Path, batch: int) -> tuple[str, int, int]:
    words = boxcrew("plan", recipe, f"data={data}", f"batch={batch}", "init=scratch", "--json")
    plan = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["plan"]
    return plan["memory_format"], plan["threads"], plan["loader_workers"]


def _child(recipe: str, data: Path, batches: str, *words: str, **environment: str) -> Any:
    command = [sys.executable, "-m", "bench.planner_sweep", recipe, str(data), batches, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | environment)
    return json.loads(done.stdout)


def _naive(recipe: str, data: Path, batch: int) -> float:
    return float(_child(recipe, data, str(batch), "naive"))


def _ours(recipe: str, data: Path, batch: int, chosen: tuple[str, int, int]) -> float:
    words = [str(word) for word in chosen]
    return float(_child(recipe, data, str(batch), *words, GOMP_SPINCOUNT="5000"))
