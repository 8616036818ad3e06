"""Other trainers to compare with. Each has its own environment, `.peers/<name>`, made by `make peers`.

None is imported here: a script of this folder is run by the peer's interpreter and prints JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

_SCRIPTS = Path(__file__).parent
_ENVIRONMENTS = Path(__file__).parents[2] / ".peers"

_QUIET = {
    "YOLO_OFFLINE": "1",  # Ultralytics: no downloads, no reports of use
    "YOLO_AUTOINSTALL": "0",
    "YOLO_VERBOSE": "0",
    "HF_HUB_OFFLINE": "1",
    "MPLBACKEND": "Agg",
}


def missing(peer: str) -> str:
    """Return the reason to skip a peer that is not installed."""
    return f"no .peers/{peer}; make peers"


def is_installed(peer: str) -> bool:
    return _interpreter(peer).is_file()


def run_peer(peer: str, script: str, *words: str) -> dict[str, Any]:
    """Run `script` (a file of this folder, without .py) and return the JSON object in its last line.

    Settings that the peer stores go to a temporary folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [_interpreter(peer), _SCRIPTS / f"{script}.py", *words],
            env={**os.environ, **_QUIET, "YOLO_CONFIG_DIR": folder},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _interpreter(peer: str) -> Path:
    return _ENVIRONMENTS / peer / "bin" / "python"
