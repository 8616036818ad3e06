"""A checkpoint comes back as it was written, or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from boxcrew.core.errors import ModelError
from boxcrew.train.loop.checkpoint import (
    FORMAT,
    Checkpoint,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    remove_old,
    write_checkpoint,
)

FILES = ("tensors.safetensors", "state.json", "COMMIT")


def make(step: int) -> Checkpoint:
    torch.manual_seed(step)
    tensors = {
        "task/weight": torch.randn(3, 4),
        "task/photo": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "task/count": torch.tensor(step),
        "random/cpu": torch.get_rng_state(),
    }
    return Checkpoint(step=step, tensors=tensors, state={"elapsed": step / 3, "hooks": {"a": {"b": None}}})


def copies(place: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(place, target)
    return target


def test_round_trip(tmp_path: Path) -> None:
    written = make(12)
    read = read_checkpoint(write_checkpoint(tmp_path, written))
    assert read.step == 12
    assert read.state == written.state
    assert read.tensors.keys() == written.tensors.keys()
    for name, value in written.tensors.items():
        assert torch.equal(read.tensors[name], value), name
        assert read.tensors[name].dtype == value.dtype


def test_the_newest_is_chosen_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000, 7):
        write_checkpoint(tmp_path, make(step))
    newest, complaints = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 100_000_000
    assert complaints == []
    assert newest_checkpoint(tmp_path / "absent") == (None, [])


@pytest.mark.parametrize("name", FILES)
def test_cut_at_any_byte_it_is_never_chosen(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path, make(1))
    place = write_checkpoint(tmp_path, make(2))
    whole = (place / name).read_bytes()
    for length in sorted({*range(0, len(whole), max(1, len(whole) // 40)), len(whole) - 1}):
        (place / name).write_bytes(whole[:length])
        newest, complaints = newest_checkpoint(tmp_path)
        assert newest is not None
        assert newest.step == 1, f"{name} cut to {length} of {len(whole)} bytes"
        assert len(complaints) == 1
        assert str(place) in complaints[0]
    (place / name).unlink()
    newest, _ = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 1


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_or_does_no_harm(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path, make(1))
    place = write_checkpoint(tmp_path, make(2))
    whole = (place / name).read_bytes()
    expected = make(2)
    for position in range(0, len(whole), max(1, len(whole) // 60)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << (position % 8)
        (place / name).write_bytes(bytes(flipped))
        newest, _ = newest_checkpoint(tmp_path)
        assert newest is not None
        if name != "COMMIT":
            assert newest.step == 1, f"{name}: byte {position}"
        elif newest.step != 1:  # a letter of the marker that nothing depends on
            assert newest.step == 2
            assert newest.state == expected.state
            assert torch.equal(newest.tensors["task/weight"], expected.tensors["task/weight"])


def test_leftovers_of_a_killed_writer_are_no_checkpoints_and_go_with_the_next(tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path, make(3))
    leftover = copies(whole, tmp_path / ".00000009.4711")
    unmarked = copies(whole, tmp_path / "00000008")
    (unmarked / "COMMIT").unlink()
    assert list_checkpoints(tmp_path) == [whole]
    write_checkpoint(tmp_path, make(4))
    assert not leftover.exists()
    assert [place.name for place in list_checkpoints(tmp_path)] == ["00000003", "00000004"]


def test_a_step_that_comes_by_again_replaces_a_damaged_one(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path, make(5))
    (place / "state.json").write_text("{}")
    assert write_checkpoint(tmp_path, make(5)) == place
    assert read_checkpoint(place).step == 5


def test_a_failed_write_leaves_nothing_and_harms_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, make(1))
    broken = Checkpoint(step=2, tensors={"a": torch.zeros(1)}, state={"not json": object()})
    with pytest.raises(TypeError):
        write_checkpoint(tmp_path, broken)
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]


def test_another_format_is_refused_in_words(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path, make(1))
    commit = json.loads((place / "COMMIT").read_text())
    (place / "COMMIT").write_text(json.dumps(commit | {"format": FORMAT + 1}))
    with pytest.raises(ModelError, match=f"format {FORMAT + 1}, but this version reads {FORMAT}") as caught:
        read_checkpoint(place)
    assert str(place) in caught.value.message
    assert caught.value.advice


def test_keeps_the_last_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, make(step))
        remove_old(tmp_path, last=step, keep=2)
    assert [place.name for place in list_checkpoints(tmp_path)] == ["00000003", "00000004"]


def test_a_damaged_newer_one_does_not_push_out_the_only_good(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, make(10))
    damaged = write_checkpoint(tmp_path, make(20))
    (damaged / "state.json").write_text("{}")
    write_checkpoint(tmp_path, make(15))
    remove_old(tmp_path, last=15, keep=1)
    newest, _ = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 15
