"""A replica does not outlive who started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def die_with_parent() -> None:
    """Has the system end this process when its parent ends, however that happens: a replica without the
    others must not go on writing. Only Linux can.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), signal.SIGKILL)
