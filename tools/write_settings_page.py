"""Writes docs/reference/settings.md from the settings themselves: `python tools/write_settings_page.py`."""

from __future__ import annotations

from pathlib import Path

from boxcrew.train.settings_reference import settings_page

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(settings_page(), encoding="utf-8")
