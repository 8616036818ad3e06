"""The speeds of this machine: measured once, and stored until something about the machine changes."""

from __future__ import annotations

import copy
import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn

from boxcrew.core.cache import cache_folder, read_cached, write_cached
from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine, Speeds

QUIET = 0.3  # cores that other processes may use during a measurement
TIMEOUT = 120.0  # seconds for all devices, in a subprocess
MOMENT = 0.2  # seconds for which each kind of work is measured
SIDE = 1024  # of the matrices
IMAGES, CHANNELS, MAP = 8, 64, 56  # of the convolution: a middle stage of a usual network
COPIED = 128 << 20  # bytes: more than caches hold
PHOTO = (1280, 960)


def with_speeds(machine: Machine, folder: Path | None = None) -> Machine:
    """Return the machine with the speeds of its devices: stored, or measured now in two seconds per device.

    Speeds that were measured on a busy machine are used until it is idle. `folder` is where they are stored,
    by default the user's cache.
    """
    folder = folder or cache_folder("machine")
    file = folder / f"{fingerprint(machine)}.json" if folder else None
    stored = read_cached(Machine, file)
    if stored is not None and (stored.busy_cores < QUIET or machine.busy_cores >= QUIET):
        speeds = {device.name: device.speeds for device in stored.devices}
        devices = tuple(d.model_copy(update={"speeds": speeds.get(d.name)}) for d in machine.devices)
        return machine.model_copy(update={"devices": devices, "decoded_pixels": stored.decoded_pixels})
    measured = measure_in_subprocess(machine) if machine.accelerators else measure_machine(machine)
    write_cached(file, measured.tree())
    return measured


def measure_machine(machine: Machine) -> Machine:
    with _threads(max(1, int(machine.cores))):
        devices = tuple(
            d if d.kind == "xla" else d.model_copy(update={"speeds": measure_device(d)})
            for d in machine.devices  # xla computes lazily: its calls cannot be timed
        )
    return machine.model_copy(update={"devices": devices, "decoded_pixels": measure_decoding()})


def measure_in_subprocess(machine: Machine) -> Machine:
    """Measure in a subprocess, because a process that used an accelerator never frees all of its memory.

    If it fails, the machine is returned without speeds.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "boxcrew.hardware.speed"],
            input=json.dumps(machine.tree()),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
        return Machine.of(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, UsageError):
        return machine


def measure_device(device: Device) -> Speeds:
    torch_device = torch.device(device.name)
    matrix = torch.randn(SIDE, SIDE, device=torch_device)
    images = torch.randn(IMAGES, CHANNELS, MAP, MAP, device=torch_device)
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False).to(torch_device)
    work = 2 * IMAGES * MAP * MAP * CHANNELS * CHANNELS * 9
    block = torch.zeros(COPIED // 4, device=torch_device)
    target = torch.empty_like(block)
    last = torch.channels_last
    images_last, layer_last = images.to(memory_format=last), copy.deepcopy(layer).to(memory_format=last)
    with torch.inference_mode():
        return Speeds(
            gemm=2 * SIDE**3 / _seconds(lambda: matrix @ matrix, torch_device) / 1e9,
            convolution=work / _seconds(lambda: layer(images), torch_device) / 1e9,
            convolution_channels_last=work / _seconds(lambda: layer_last(images_last), torch_device) / 1e9,
            copy_bytes=2 * COPIED / _seconds(lambda: target.copy_(block), torch_device),
            from_host_bytes=None if device.kind == "cpu" else _from_host(block, torch_device),
        )


def measure_decoding() -> float:
    """Return the pixels per second of a photo-like JPEG, decoded on one core."""
    width, height = PHOTO
    rough = np.random.default_rng(0).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    encoded = cv2.imencode(".jpg", cv2.resize(rough, PHOTO, interpolation=cv2.INTER_CUBIC))[1]
    seconds = _seconds(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR), torch.device("cpu"))
    return width * height / seconds


def _from_host(block: Tensor, device: torch.device) -> float:
    source = torch.zeros(COPIED // 4, pin_memory=device.type == "cuda")
    return COPIED / _seconds(lambda: block.copy_(source), device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of a call, without the first."""
    _timed(work, device)
    end = time.perf_counter() + MOMENT
    times = [_timed(work, device)]
    while time.perf_counter() < end:
        times.append(_timed(work, device))
    return statistics.median(times)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    work()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
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
    """Return a hash of everything that may change speeds: not of the present load, nor of the speeds."""
    lasting = machine.model_dump(mode="json", exclude={"busy_cores", "decoded_pixels", "devices"})
    lasting["devices"] = [
        device.model_dump(mode="json", exclude={"free_bytes", "speeds"}) for device in machine.devices
    ]
    return hashlib.blake2b(json.dumps(lasting, sort_keys=True).encode(), digest_size=16).hexdigest()


if __name__ == "__main__":
    print(json.dumps(measure_machine(Machine.of(json.load(sys.stdin))).tree()))
