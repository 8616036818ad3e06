"""Taking part in a run of several processes: the others hear how this one ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from boxcrew.core.errors import PREEMPTED, BoxcrewError
from boxcrew.core.parent_process import LAUNCHER
from boxcrew.deploy.processes.collectives import ReplicaGroup
from boxcrew.deploy.processes.membership import LOST, LeftError, ReplicaLostError


@contextmanager
def taking_part(group: ReplicaGroup) -> Iterator[None]:
    """Close the group at the end, and report a failure to the others. The process ends if it has left them,
    or if it cannot go on without one that is lost.
    """
    try:
        yield
    except LeftError:
        sys.exit(PREEMPTED)
    except ReplicaLostError:
        if LAUNCHER not in os.environ:
            raise
        os._exit(LOST)  # at once: the launcher starts all again
    except (Exception, KeyboardInterrupt) as error:
        group.report_failure(error.message if isinstance(error, BoxcrewError) else repr(error))
        raise
    finally:
        group.close()
