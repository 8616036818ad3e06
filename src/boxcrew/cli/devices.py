"""The command `boxcrew devices`: what this machine has, and how fast it is."""

from __future__ import annotations

from pathlib import Path

from boxcrew.cli.output import Output, parse_settings
from boxcrew.core.config import Config
from boxcrew.core.units import format_bytes
from boxcrew.hardware.machine import Device, Machine
from boxcrew.hardware.probe import probe_machine
from boxcrew.hardware.speed import with_speeds


class DevicesConfig(Config):
    machine: Path | None = None  # a file that describes another machine


def devices_command(words: list[str], out: Output) -> None:
    _, tree = parse_settings(words)
    file = DevicesConfig.of(tree).machine
    machine = with_speeds(probe_machine()) if file is None else Machine.read(file, setting="machine")
    out.result(machine.tree())
    if out.as_json:
        return
    out.info(f"machine: {machine.headline()}")
    nodes = f", {machine.numa_nodes} NUMA nodes" if machine.numa_nodes > 1 else ""
    out.info(f"{machine.platform}, Python {machine.python}, torch {machine.torch}{nodes}")
    for device in machine.devices:
        out.info(f"{device.name}: {device.model}")
    columns = ("device", "memory", "GEMM", "conv", "conv channels-last", "copy", "from host")
    out.table("speed per second", columns, [_row(device) for device in machine.devices])
    if machine.decoded_pixels is not None:
        out.info(f"one core decodes {machine.decoded_pixels / 1e6:.0f} million pixels of JPEGs a second")


def _row(device: Device) -> tuple[str, ...]:
    speeds = device.speeds
    first = device.name, format_bytes(device.memory_bytes)
    if speeds is None:
        return (*first, *["-"] * 5)
    operations = (speeds.gemm, speeds.convolution, speeds.convolution_channels_last)
    from_host = format_bytes(speeds.from_host_bytes) if speeds.from_host_bytes else "-"
    return (
        *first,
        *(f"{speed:.0f} GFLOP" for speed in operations),
        format_bytes(speeds.copy_bytes),
        from_host,
    )
