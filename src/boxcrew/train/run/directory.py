"""The run directory: where it is, and who may write there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.train.run.lock import LOCK, locked

RUNS = Path("runs")


def choose_folder(out: Path | None, usual: Path) -> Path:
    """`out` itself, or the first free of runs/<usual>, <usual>-2, …; nothing is made yet."""
    if out is not None:
        _refuse_foreign(out)
        return out
    return next(folder for folder in _names(usual) if not folder.exists())


@contextmanager
def held_folder(out: Path | None, usual: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The same, made and locked. Of runs that ask at once for the same free name each gets one of its own."""
    with ExitStack() as stack:
        if out is not None:
            folder = choose_folder(out, usual)
            stack.enter_context(locked(folder, say))
        else:
            folder = _claim(stack, usual, say)
        yield folder


def _claim(stack: ExitStack, usual: Path, say: Callable[[str], None]) -> Path:
    """Whoever makes a directory has it: the system lets only one."""
    for folder in _names(usual):
        if not folder.exists():
            with suppress(FileExistsError):
                stack.enter_context(locked(folder, say, new=True))
                return folder
    raise AssertionError  # names do not end


def _names(usual: Path) -> Iterator[Path]:
    first = RUNS / usual
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def _refuse_foreign(folder: Path) -> None:
    """A directory with anything in it is used only if it is a run's, and one that can go on: nothing of a
    user's is overwritten.
    """
    if folder.is_file():
        raise UsageError(f"out={folder}: is a file", advice="give a directory that does not exist yet")
    if folder.is_dir() and any(p.name != LOCK for p in folder.iterdir()) and not _is_run(folder):
        raise UsageError(
            f"out={folder}: not empty, and not a run",
            advice="give a directory that does not exist yet",
        )


def _is_run(folder: Path) -> bool:
    """Many things are named config.yaml; a run has a plan beside it."""
    return all((folder / name).is_file() for name in ("config.yaml", "plan.json"))


def require_run(folder: Path) -> Path:
    """The directory of an existing run."""
    if not _is_run(folder):
        raise UsageError(
            f"run={folder}: not a run directory: it has no config.yaml with a plan.json",
            advice="give the directory that 'boxcrew train' named at its end, such as runs/detect/train",
        )
    return folder
