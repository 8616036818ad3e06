"""The cost of checkpoints at the default interval."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

from bench.row import Row

EPOCHS = 1.5  # of the starter recipe: checkpoints at the start, after the first epoch and at the end


def rows() -> list[Row]:
    from boxcrew.api import run_config
    from boxcrew.train.loop.hooks.saver import Saver
    from boxcrew.train.output.screen import Screen
    from boxcrew.train.run import train

    savers: list[Saver] = []
    close = Saver.close

    def note(saver: Saver) -> None:
        savers.append(saver)
        close(saver)

    with tempfile.TemporaryDirectory() as folder, patch.object(Saver, "close", note):
        settings = {"epochs": EPOCHS, "out": str(Path(folder) / "run"), "evaluation": {"every_epochs": 1000}}
        outcome = train(run_config("starter", settings), Screen())
    seconds, saver = outcome.summary["train_seconds"], savers[0]
    waited, worked = saver.loop_seconds / seconds, saver.cpu_seconds / seconds
    return [
        Row(
            what="checkpoints of `starter` at the default interval",
            ours=f"{waited + worked:.2%} of the run's time",
            theirs="aim: under 2 %",
            verdict="met" if waited + worked < 0.02 else "missed",
            command="python -m bench saver",
            detail=f"{EPOCHS} epochs in {seconds:.0f} s; the loop waited {waited:.2%} for copies and earlier "
            f"writes, the writing thread used {worked:.2%} of a core",
        )
    ]
