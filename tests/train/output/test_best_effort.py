"""Files that a run can do without for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxcrew.train.output.best_effort import BestEffort


def test_it_warns_once_for_each_file_until_it_works_again(tmp_path: Path) -> None:
    warnings: list[str] = []
    files = BestEffort(warnings.append)
    absent = tmp_path / "absent"

    def write(name: str) -> None:
        with files.writing(name):
            (absent / name).write_text("x")

    for name in ("a", "b", "a"):
        write(name)
    assert [text.split()[0] for text in warnings] == ["a", "b"]
    assert "No such file or directory" in warnings[0]
    assert files.problems() == [f"{name}: No such file or directory" for name in "ab"]
    absent.mkdir()
    write("a")
    assert files.is_written("a")
    assert not files.is_written("b")
    assert files.problems() == ["b: No such file or directory"]
    (absent / "a").unlink()
    absent.rmdir()
    write("a")
    assert len(warnings) == 3


def test_other_errors_than_those_of_files_are_raised() -> None:
    with pytest.raises(KeyError), BestEffort(pytest.fail).writing("a"):
        raise KeyError("ours")
