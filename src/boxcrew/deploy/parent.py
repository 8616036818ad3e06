"""A replica does not outlive the launcher that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

LAUNCHER = "BOXCREW_LAUNCHER"  # the environment's name for the launcher's process number
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def die_with(launcher: int) -> None:
    """Has the system end this process when the launcher, its parent, ends, however that happens: a replica
    without the others must not go on writing. Only Linux can.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
