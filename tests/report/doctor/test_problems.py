"""What is wrong, in words and pictures."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from boxcrew.data.checks.problem import ProblemKind
from boxcrew.report.doctor.problems import MEANINGS, problems_section
from boxcrew.report.doctor.report import Diagnosis


def test_every_kind_of_problem_has_a_meaning() -> None:
    assert set(MEANINGS) == set(get_args(ProblemKind))


def test_damage_is_shown(
    tiny_set: Path, tmp_path: Path, examined: Callable[[Path], Diagnosis], read_page: Any
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(tiny_set, photos)
    first, second, *_ = sorted((photos / "Annotations").iterdir())
    first.write_text(re.sub(r"<xmax>[\d.]+", "<xmax>900", first.read_text(), count=1))
    second.write_text(re.sub(r"<xmax>[\d.]+", "<xmax>nan", second.read_text(), count=1))
    result = examined(photos)
    page = problems_section(result.source, workers=1)
    alts = [alt or "" for alt in read_page(page).values("img", "alt")]
    assert any(first.name in alt and ("reaches out" in alt or "is larger" in alt) for alt in alts)
    assert any(second.name in alt and "not a number" in alt for alt in alts)
    assert page.count('stroke-dasharray="5 4"') == 1  # the box that has a place
