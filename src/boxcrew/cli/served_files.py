"""The files behind the runs that are served: a run without one is exported and proved first.

The export needs torch, which the service must not keep in memory: it runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from boxcrew.core.errors import UsageError
from boxcrew.runtime.model_file import is_model_file
from boxcrew.serve.models import ModelSource, name_sources, samples_folder
from boxcrew.serve.settings import ServeConfig

_WEIGHTS = Path("weights") / "best.safetensors"
_DIGEST = 8  # letters of the weights' digest in the name of a second export


def served_files(config: ServeConfig) -> list[ModelSource]:
    """Return the models to serve, in the order of the settings."""
    return name_sources([_source(Path(path), int8=config.int8) for path in config.paths])


def _source(path: Path, *, int8: bool) -> tuple[str, Path, float | None]:
    """Return the name of a run or file, its exported file, and the threshold that its evaluation found."""
    if is_model_file(path):
        if int8:
            raise UsageError(
                f"int8=true: {path} is exported already", advice="give the run that it was made of"
            )
        run = path.parent.parent if path.parent.name == "export" else None
        return path.stem, path, _threshold(run)
    if not path.exists():
        raise UsageError(f"run={path}: no such run or file", advice="boxcrew serve run=runs/detect/train")
    if not (path / _WEIGHTS).is_file():
        advice = "give the directory that 'boxcrew train' named at its end, or a file of 'boxcrew export'"
        raise UsageError(f"run={path}: has no {_WEIGHTS}, and is not an exported file", advice=advice)
    exported = _exported(path, int8=int8)
    if not exported.exists():
        # stdout is for the address alone: programs that start a service read it there.
        print(f"exporting {path} first", file=sys.stderr)
        _in_child("boxcrew", "export", f"run={path}", f"out={exported}", *(["int8=true"] if int8 else []))
    if not samples_folder(exported).exists():
        _in_child("boxcrew.cli.sample_photos", str(path), str(samples_folder(exported)))
    return path.resolve().name, exported, _threshold(path)


def _exported(run: Path, *, int8: bool) -> Path:
    """Return the file of a run's weights as they are now. An older export is not overwritten."""
    usual = run / "export" / ("model-int8.onnx" if int8 else "model.onnx")
    weights = run / _WEIGHTS
    if not usual.exists() or usual.stat().st_mtime >= weights.stat().st_mtime:
        return usual
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:_DIGEST]
    return usual.with_name(f"{usual.stem}-{digest}{usual.suffix}")


def _in_child(module: str, *words: str) -> None:
    """Run a module in a process of its own, whose output is seen; if it fails, it has said why."""
    child = subprocess.run([sys.executable, "-m", module, *words], stdout=sys.stderr, check=False)  # noqa: S603
    if child.returncode:
        raise SystemExit(child.returncode)


def _threshold(run: Path | None) -> float | None:
    """Return the score threshold with the best F1 in the run's evaluation, where that is known."""
    if run is None:
        return None
    try:
        threshold = json.loads((run / "summary.json").read_text(encoding="utf-8"))["threshold"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return threshold if isinstance(threshold, float) and 0 < threshold < 1 else None
