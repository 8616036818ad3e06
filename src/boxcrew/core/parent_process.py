"""Ending a process together with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

LAUNCHER = "BOXCREW_LAUNCHER"  # environment variable with the launcher's process number
MEMBER = "BOXCREW_MEMBER"  # environment variable with the number of a replica that our launcher has started
RUN_FOLDERS = "BOXCREW_RUN_FOLDERS"  # environment variable with the file in which the chief names its folders
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def die_with(parent: int) -> None:
    """Let the system kill this process when its parent ends, however that happens: a replica without the
    others must not go on writing, nor a loader's worker go on reading. Linux only.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
