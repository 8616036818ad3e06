"""The speeds of this machine: measured once, and stored until something about the machine changes."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn

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

    Those of a busy machine are used until it is idle. `folder` is by default the user's cache.
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
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, int(machine.cores)))
    try:
        devices = tuple(
            d if d.kind == "xla" else d.model_copy(update={"speeds": measure_device(d)})
            for d in machine.devices  # xla computes lazily: its calls cannot be timed
        )
    finally:
        torch.set_num_threads(before)
    return machine.model_copy(update={"devices": devices, "decoded_pixels": measure_decoding()})


def measure_in_subprocess(machine: Machine) -> Machine:
    """Measure in a process that ends, to free all memory of accelerators. No speeds if it fails."""
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
    seconds = partial(_seconds, device=torch.device(device.name))
    matrix = torch.randn(SIDE, SIDE, device=device.name)
    images = torch.randn(IMAGES, CHANNELS, MAP, MAP, device=device.name)
    layer = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False).to(device.name)
    work = 2 * IMAGES * MAP * MAP * CHANNELS * CHANNELS * 9
    block = torch.zeros(COPIED // 4, device=device.name)
    target = torch.empty_like(block)
    source = torch.zeros(COPIED // 4, pin_memory=device.kind == "cuda")
    last = torch.channels_last
    images_last, layer_last = images.to(memory_format=last), copy.deepcopy(layer).to(memory_format=last)
    with torch.inference_mode():
        return Speeds(
            gemm=2 * SIDE**3 / seconds(lambda: matrix @ matrix) / 1e9,
            convolution=work / seconds(lambda: layer(images)) / 1e9,
            convolution_channels_last=work / seconds(lambda: layer_last(images_last)) / 1e9,
            copy_bytes=2 * COPIED / seconds(lambda: target.copy_(block)),
            from_host_bytes=None if device.kind == "cpu" else COPIED / seconds(lambda: block.copy_(source)),
        )


def measure_decoding() -> float:
    """Return the pixels per second of a photo-like JPEG, decoded on one core."""
    width, height = PHOTO
    rough = np.random.default_rng(0).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    encoded = cv2.imencode(".jpg", cv2.resize(rough, PHOTO, interpolation=cv2.INTER_CUBIC))[1]
    seconds = _seconds(lambda: cv2.imdecode(encoded, cv2.IMREAD_COLOR), torch.device("cpu"))
    return width * height / seconds


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of a call, without the first."""
    times: list[float] = []
    end = math.inf
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - start)
        end = min(end, time.perf_counter() + MOMENT)
    return statistics.median(times[1:])


def fingerprint(machine: Machine) -> str:
    """Return a hash of everything that may change speeds: not of the present load, nor of the speeds."""
    lasting = machine.model_dump(mode="json", exclude={"busy_cores", "decoded_pixels", "devices"})
    changing = {"free_bytes", "speeds"}
    lasting["devices"] = [device.model_dump(mode="json", exclude=changing) for device in machine.devices]
    return hashlib.blake2b(json.dumps(lasting, sort_keys=True).encode(), digest_size=16).hexdigest()


if __name__ == "__main__":
    print(json.dumps(measure_machine(Machine.of(json.load(sys.stdin))).tree()))
