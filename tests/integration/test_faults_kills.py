"""Processes that end where nobody would choose. Each test says what is injected and what must hold."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from boxcrew.core.config import to_yaml
from boxcrew.train.config import RunConfig
from boxcrew.train.loop.checkpoint import list_checkpoints
from boxcrew.train.output.screen import Screen
from boxcrew.train.run import resume
from tests.helpers.runs import require_same_run

MakeConfig = Callable[..., RunConfig]
InChild = Callable[..., int]
STEPS = 8

TRAIN = """
import os, signal
from boxcrew.core.config import read_yaml
from boxcrew.train.config import RunConfig
from boxcrew.train.run import train
from boxcrew.train.output.screen import Screen
from boxcrew.train.loop.trainer import Trainer
from pathlib import Path

def die():
    os.kill(os.getpid(), signal.SIGKILL)

{fault}
train(RunConfig.of(read_yaml(Path(given["settings"]))), Screen())
"""

# The first checkpoint is written beside the first steps; without one there is nothing to resume.
IN_A_STEP = """
import time
original = Trainer._update

def update(self, loss, phase):
    if self.step == given["step"]:
        while not list(Path(given["checkpoints"]).glob("[!.]*/COMMIT")):
            time.sleep(0.01)
        die()
    return original(self, loss, phase)

Trainer._update = update
"""

IN_A_SAVE = """
calls, original = [], os.fsync

def fsync(handle):
    if "checkpoints" in os.readlink(f"/proc/self/fd/{handle}"):
        calls.append(handle)
        if len(calls) == given["call"]:
            die()
    original(handle)

os.fsync = fsync
"""


def train_in_child(
    in_child: InChild, settings: RunConfig, fault: str, folder: Path, **given: int | str
) -> int:
    path = folder / "settings.yaml"
    path.write_text(to_yaml(settings))
    return in_child(TRAIN.format(fault=fault), settings=str(path), **given)


@pytest.mark.parametrize(("seed", "workers", "workers_after"), [(0, 0, 1), (1, 1, 0), (2, 3, 1)])
def test_kill_at_a_random_step(
    photos: Path,
    whole: Path,
    tmp_path: Path,
    config: MakeConfig,
    in_child: InChild,
    seed: int,
    workers: int,
    workers_after: int,
) -> None:
    """SIGKILL between a step's gradient and its update -> its lock is taken over, and it ends bit-equal to a
    run that was never stopped, whatever the number of loader workers before and after.
    """
    step = random.Random(seed).randrange(STEPS)
    out = tmp_path / "run"
    settings = config(photos, out, loader={"workers": workers})
    saved = str(out / "checkpoints")
    code = train_in_child(in_child, settings, IN_A_STEP, tmp_path, step=step, checkpoints=saved)
    assert code == -signal.SIGKILL
    assert (out / "lock").is_file()
    resume(out, {"loader": {"workers": workers_after}}, Screen())
    assert "its lock is taken over" in (out / "train.log").read_text()
    assert not (out / "lock").exists()
    require_same_run(out, whole)


@pytest.mark.parametrize("call", [2, 7, 10])
def test_kill_while_a_run_saves(
    photos: Path, whole: Path, tmp_path: Path, config: MakeConfig, in_child: InChild, call: int
) -> None:
    """SIGKILL while the thread that saves flushes a file or directory of a checkpoint -> it goes on from the
    one before, bit-equal to a run that was never stopped; one killed in its very first save begins anew.
    """
    out = tmp_path / "run"
    assert train_in_child(in_child, config(photos, out), IN_A_SAVE, tmp_path, call=call) == -signal.SIGKILL
    if list_checkpoints(out / "checkpoints"):
        resume(out, {}, Screen())
    else:
        assert train_in_child(in_child, config(photos, out), "", tmp_path) == 0
    require_same_run(out, whole)
    assert not list((out / "checkpoints").glob(".*")), "leftovers of the killed"


MANY_POINTS = """
import os, resource, shutil, signal
from pathlib import Path
import torch
from boxcrew.train.loop.checkpoint import Checkpoint, newest_checkpoint, write_checkpoint

folder = Path(given["folder"])
noise = torch.Generator().manual_seed(0)

def make(step):
    return Checkpoint(
        step=step, tensors={"a": torch.randn(4000, generator=noise)}, state={"x": ["y" * 30] * step}
    )

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def cut_files_at(size):
    "The system ends a process that writes past the limit on the size of a file."
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

def cut_at_flush(number):
    calls, original = [], os.fsync
    def fsync(handle):
        calls.append(handle)
        if len(calls) == number:
            die()
        original(handle)
    os.fsync = fsync

def cut_before_move(_):
    Path.replace = lambda self, target: die()

write_checkpoint(folder, make(1))
size = write_checkpoint(folder.with_name("whole"), make(2)).joinpath("tensors.safetensors").stat().st_size
points = [(cut_files_at, n) for n in range(0, size, size // 43)] + [(cut_files_at, size - 1)]
points += [(cut_at_flush, n) for n in range(1, 7)] + [(cut_before_move, 0)]
seen = set()
for cut, where in points:
    child = os.fork()
    if child == 0:
        cut(where)
        write_checkpoint(folder, make(2))
        os._exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {-signal.SIGKILL, -signal.SIGXFSZ, 7}, (cut, where, code)
    newest, complaints = newest_checkpoint(folder)
    assert complaints == [], "a half one is not even looked at"
    moved = code == 7 or (cut is cut_at_flush and where == 6)  # all done, or only the folder not flushed
    assert newest.step == (2 if moved else 1), (cut.__name__, where, code)
    seen.add(code)
    shutil.rmtree(folder / "00000002", ignore_errors=True)
assert len(points) >= 50
assert seen == {-signal.SIGKILL, -signal.SIGXFSZ}
write_checkpoint(folder, make(3))
assert sorted(p.name for p in folder.iterdir()) == ["00000001", "00000003"]
"""


def test_kill_in_a_save_at_fifty_points(tmp_path: Path, in_child: InChild) -> None:
    """The system ends the process at a byte of a file, at a flush or before the last move -> the checkpoint
    before is what a reader finds, and no trace of the half one stays after the next save.
    """
    assert in_child(MANY_POINTS, folder=str(tmp_path / "checkpoints")) == 0
