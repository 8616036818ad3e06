"""The map of the code names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_that_the_architecture_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = {path for path in re.findall(r"`([\w/]+\.py)`", text) if "NAME" not in path}
    assert len(paths) > 15
    missing = [
        path for path in paths if not any((base / path).is_file() for base in (ROOT, ROOT / "src/boxcrew"))
    ]
    assert not missing
