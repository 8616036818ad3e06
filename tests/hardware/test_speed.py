"""Speeds are measured once and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from boxcrew.hardware import speed
from boxcrew.hardware.machine import Machine
from boxcrew.hardware.probe import probe_machine


@pytest.fixture(scope="module")
def machine() -> Machine:
    """This machine as if it were idle."""
    return probe_machine().model_copy(update={"busy_cores": 0.0})


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones: these tests are not about the numbers."""
    monkeypatch.setattr(speed, "MOMENT", 0.001)


@pytest.mark.usefixtures("moments")
def test_every_device_is_measured(machine: Machine, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    measured = speed.with_speeds(machine, tmp_path)
    assert torch.get_num_threads() == threads
    for device in measured.devices:
        assert device.speeds is not None
        assert device.speeds.gemm > 0.1  # GFLOP/s: any computer of this century
        assert 1e8 < device.speeds.copy_bytes < 1e14
        assert (device.speeds.from_host_bytes is None) == (device.kind == "cpu")
    assert measured.decoded_pixels is not None
    assert 1e5 < measured.decoded_pixels < 1e11
    unmeasured = tuple(device.model_copy(update={"speeds": None}) for device in measured.devices)
    assert measured.model_copy(update={"devices": unmeasured, "decoded_pixels": None}) == machine


@pytest.mark.usefixtures("moments")
def test_what_was_measured_is_kept_until_the_machine_changes(machine: Machine, tmp_path: Path) -> None:
    first = speed.with_speeds(machine, tmp_path)
    assert speed.with_speeds(machine, tmp_path) == first  # to the last digit: not measured again
    speed.with_speeds(machine.model_copy(update={"cores": machine.cores + 1}), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("moments")
def test_what_is_free_is_as_now_and_changes_no_speed(machine: Machine, tmp_path: Path) -> None:
    first = speed.with_speeds(machine, tmp_path)
    cpu, *others = machine.devices
    fuller = (cpu.model_copy(update={"free_bytes": 12345}), *others)
    later = machine.model_copy(update={"busy_cores": machine.cores / 2, "devices": fuller})
    measured = speed.with_speeds(later, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert (measured.busy_cores, measured.devices[0].free_bytes) == (machine.cores / 2, 12345)
    assert [device.speeds for device in measured.devices] == [device.speeds for device in first.devices]
    assert measured.decoded_pixels == first.decoded_pixels


@pytest.mark.usefixtures("moments")
@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_a_damaged_record_is_measured_anew(machine: Machine, tmp_path: Path, text: str) -> None:
    first = speed.with_speeds(machine, tmp_path)
    file = next(tmp_path.iterdir())
    file.write_text(text)
    assert speed.with_speeds(machine, tmp_path).devices[0].name == first.devices[0].name
    assert file.read_text() != text


@pytest.mark.usefixtures("moments")
def test_a_place_that_cannot_be_written_is_no_error(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert speed.with_speeds(machine, tmp_path / "file" / "folder").devices[0].speeds is not None


@pytest.mark.usefixtures("moments")
def test_what_was_measured_while_others_were_at_work_stands_until_they_are_not(
    machine: Machine, tmp_path: Path
) -> None:
    busy = machine.model_copy(update={"busy_cores": 1.0})
    first = speed.with_speeds(busy, tmp_path).devices[0].speeds
    assert speed.with_speeds(busy, tmp_path).devices[0].speeds == first
    quiet = speed.with_speeds(machine, tmp_path).devices[0].speeds
    assert quiet != first
    assert speed.with_speeds(busy, tmp_path).devices[0].speeds == quiet


def test_another_process_measures_the_same(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = speed.measure_in_subprocess(machine)
    assert measured.devices[0].speeds is not None
    assert measured.decoded_pixels is not None
    assert (measured.cores, measured.devices[0].model) == (machine.cores, machine.devices[0].model)
    monkeypatch.setattr(speed, "TIMEOUT", 0.01)
    assert speed.measure_in_subprocess(machine) == machine  # no time: not known
