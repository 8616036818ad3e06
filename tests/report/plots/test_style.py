"""What all plots share."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_home_that_cannot_be_written_to_is_not_complained_about() -> None:
    kept = {name: value for name, value in os.environ.items() if name not in {"MPLCONFIGDIR"}}
    unwritable = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), "/dev/null")
    code = "import os; from boxcrew.report.plots.style import new_figure; new_figure(2, 1, 'x'); "
    code += "print(os.environ['MPLCONFIGDIR'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**kept, **unwritable}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    folder = done.stdout.strip()
    assert not os.path.exists(folder), "it was a temporary one"
