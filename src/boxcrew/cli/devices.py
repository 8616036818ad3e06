"""`boxcrew devices`."""

from __future__ import annotations

import json
from pathlib import Path

from boxcrew.cli.output import print_json, screen, settings
from boxcrew.core.errors import UsageError
from boxcrew.core.registry import suggest
from boxcrew.core.units import format_bytes
from boxcrew.hardware.machine import Device, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import measured

KNOWN = ("machine",)


def devices_command(words: list[str], *, as_json: bool) -> None:
    _, tree = settings(words)
    for name in tree:
        if name not in KNOWN:
            raise UsageError(f"{name}: no such setting; {suggest(name, KNOWN)}")
    given = tree.get("machine")
    machine = measured(probe_machine()) if given is None else read_machine(Path(str(given)))
    if as_json:
        print_json(machine.tree())
        return
    say = screen(as_json=False)
    say.say(f"machine: {machine.headline()}")
    nodes = f", {machine.numa_nodes} NUMA nodes" if machine.numa_nodes > 1 else ""
    say.say(f"{machine.platform}, Python {machine.python}, torch {machine.torch}{nodes}")
    for device in machine.devices:
        say.say(f"{device.name}: {device.model}")
    columns = ("device", "memory", "GEMM", "conv", "conv channels-last", "copy", "from host")
    say.table("what it does in a second", columns, [_row(device) for device in machine.devices])
    if machine.decoded_pixels is not None:
        say.say(f"one core decodes {machine.decoded_pixels / 1e6:.0f} million pixels of JPEGs a second")


def read_machine(path: Path) -> Machine:
    """A machine that was described, by `boxcrew devices --json` or by hand."""
    try:
        return Machine.of(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"machine={path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"machine={path}: not JSON: {error}") from None
    except UsageError as error:
        raise UsageError(f"machine={path}: {error.message}", advice=error.advice) from None


def _row(device: Device) -> tuple[str, ...]:
    speeds = device.speeds
    memory = format_bytes(device.memory_bytes)
    if speeds is None:
        return (device.name, memory, *["-"] * 5)
    operations = (speeds.gemm, speeds.convolution, speeds.convolution_channels_last)
    return (
        device.name,
        memory,
        *(f"{one:.0f} GFLOP" for one in operations),
        format_bytes(speeds.copy_bytes),
        format_bytes(speeds.from_host_bytes) if speeds.from_host_bytes else "-",
    )
