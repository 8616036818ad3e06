"""How fast this machine is: measured for a moment, and kept until something about the machine changes."""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from boxcrew.core.cache import cache_folder
from boxcrew.core.errors import UsageError
from boxcrew.core.files import write_text
from boxcrew.hardware.machine import Device, Machine, Speeds

QUIET = 0.3  # cores that others may use meanwhile
APART = 120.0  # seconds, at most, for all devices
MOMENT = 0.2  # seconds that one kind of work is watched for
SIDE = 1024  # of the matrices
IMAGES, CHANNELS, MAP = 8, 64, 56  # of the convolution: a middle stage of a usual network
COPIED = 128 << 20  # bytes: more than caches hold
PHOTO = (1280, 960)


def measured(machine: Machine, folder: Path | None = None) -> Machine:
    """The same with the speeds of all its devices: as known from before, or measured now (about two seconds a
    device). What was measured while others were at work stands until they are not. `folder` is where it is
    kept, by default the user's cache.
    """
    folder = folder or cache_folder("machine")
    file = folder / f"{fingerprint(machine)}.json" if folder else None
    known = _read(file)
    if known is not None and (known.busy_cores < QUIET or machine.busy_cores >= QUIET):
        return _as_fast_as(known, machine)
    found = measured_apart(machine) if machine.accelerators else measure(machine)
    _write(file, found)
    return found


def measure(machine: Machine) -> Machine:
    with _threads(max(1, int(machine.cores))):
        devices = tuple(
            d if d.kind == "xla" else d.model_copy(update={"speeds": measure_device(d)})
            for d in machine.devices  # what xla computes it computes later, when nobody looks at a clock
        )
    return machine.model_copy(update={"devices": devices, "decoded_pixels": measure_decoding()})


def measured_apart(machine: Machine) -> Machine:
    """By a process that ends: who has once used an accelerator holds some of its memory for good. Where it
    fails, speeds are not known.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "boxcrew.hardware.speed"],
            input=json.dumps(machine.tree()),
            capture_output=True,
            text=True,
            timeout=APART,
            check=True,
        )
        return Machine.of(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, UsageError):
        return machine


def measure_device(device: Device) -> Speeds:
    place = torch.device(device.name)
    matrix = torch.randn(SIDE, SIDE, device=place)
    images = torch.randn(IMAGES, CHANNELS, MAP, MAP, device=place)
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False).to(place)
    work = 2 * IMAGES * MAP * MAP * CHANNELS * CHANNELS * 9
    block = torch.zeros(COPIED // 4, device=place)
    target = torch.empty_like(block)
    last = torch.channels_last
    images_last, layer_last = images.to(memory_format=last), _copied(layer).to(memory_format=last)
    with torch.inference_mode():
        return Speeds(
            gemm=2 * SIDE**3 / _seconds(lambda: matrix @ matrix, place) / 1e9,
            convolution=work / _seconds(lambda: layer(images), place) / 1e9,
            convolution_channels_last=work / _seconds(lambda: layer_last(images_last), place) / 1e9,
            copy_bytes=2 * COPIED / _seconds(lambda: target.copy_(block), place),
            from_host_bytes=None if device.kind == "cpu" else _from_host(block, place),
        )


def measure_decoding() -> float:
    """Pixels a second of a photo-like JPEG, on one core."""
    width, height = PHOTO
    draw = np.random.default_rng(0)
    rough = draw.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    encoded = cv2.imencode(".jpg", cv2.resize(rough, PHOTO, interpolation=cv2.INTER_CUBIC))[1]
    seconds = _seconds(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR), torch.device("cpu"))
    return width * height / seconds


def _copied(layer: nn.Conv2d) -> nn.Conv2d:
    other = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False).to(layer.weight.device)
    other.load_state_dict(layer.state_dict())
    return other


def _from_host(block: Tensor, place: torch.device) -> float:
    source = torch.zeros(COPIED // 4, pin_memory=place.type == "cuda")
    return COPIED / _seconds(lambda: block.copy_(source), place)


def _seconds(work: Callable[[], object], place: torch.device) -> float:
    """The median time of a call, the first not counted."""
    _timed(work, place)
    end = time.perf_counter() + MOMENT
    found = [_timed(work, place)]
    while time.perf_counter() < end:
        found.append(_timed(work, place))
    return statistics.median(found)


def _timed(work: Callable[[], object], place: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if place.type != "cpu":
        torch.accelerator.synchronize(place)
    return time.perf_counter() - begun


@contextmanager
def _threads(num: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fingerprint(machine: Machine) -> str:
    """Of everything that may change speeds; what is free just now does not, and speeds themselves are not
    part of it.
    """
    at_rest = [device.model_dump(mode="json", exclude={"free_bytes", "speeds"}) for device in machine.devices]
    lasting = machine.model_dump(mode="json", exclude={"busy_cores", "decoded_pixels", "devices"})
    lasting["devices"] = at_rest
    known = json.dumps(lasting, sort_keys=True)
    return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


def _as_fast_as(known: Machine, machine: Machine) -> Machine:
    """`machine` as it is just now, with the speeds that were measured before."""
    speeds = {device.name: device.speeds for device in known.devices}
    devices = tuple(d.model_copy(update={"speeds": speeds.get(d.name)}) for d in machine.devices)
    return machine.model_copy(update={"devices": devices, "decoded_pixels": known.decoded_pixels})


def _read(file: Path | None) -> Machine | None:
    """None if it is not there, or is not what was written."""
    with suppress(UsageError):
        return Machine.read(file, setting="machine") if file is not None else None
    return None


def _write(file: Path | None, machine: Machine) -> None:
    """A speed that cannot be kept is measured again."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(machine.tree()))
    except OSError:
        return


if __name__ == "__main__":
    print(json.dumps(measure(Machine.of(json.load(sys.stdin))).tree()))
