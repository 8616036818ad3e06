"""A training run, from its settings to a directory with weights and numbers.

`train` and `resume` (commands.py) begin here; `explain` (explanation.py) ends with the plan. `prepare` finds
the checkpoint to resume from (resuming.py), opens the data (data.py), builds the task and makes the plan; it
returns a `Session`, whose `run` deploys the plan, writes what was decided, and trains with the hooks of
hooks.py. The other replicas of a run (replicas.py) share its `RunSetup` (setup.py). A run whose task has
stages is a run of runs (stages.py). `load_task` (loading.py) and `validate` use what was trained.
"""

from __future__ import annotations

from boxcrew.train.run.commands import resume, train
from boxcrew.train.run.explanation import explain

__all__ = ["explain", "resume", "train"]
