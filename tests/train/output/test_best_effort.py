"""Files that a run can do without for a while."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from boxcrew.train.output.best_effort import BestEffort


def test_it_is_said_once_for_each_file_until_it_works_again(tmp_path: Path) -> None:
    said: list[str] = []
    files = BestEffort(said.append)
    absent = tmp_path / "absent"
    for name in ("a", "b", "a"):
        assert not files.write(name, partial((absent / name).write_text, "x"))
    assert [text.split()[0] for text in said] == ["a", "b"]
    assert "No such file or directory" in said[0]
    assert files.trouble == dict.fromkeys("ab", "No such file or directory")
    absent.mkdir()
    assert files.write("a", partial((absent / "a").write_text, "x"))
    assert files.trouble.keys() == {"b"}
    (absent / "a").unlink()
    absent.rmdir()
    assert not files.write("a", partial((absent / "a").write_text, "x"))
    assert len(said) == 3


def test_what_is_not_the_disks_fault_is_passed_on() -> None:
    def fail() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        BestEffort(pytest.fail).write("a", fail)
