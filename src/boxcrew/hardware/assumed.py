"""Machines that are assumed: described in a few words, or in a JSON file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from platform import python_version

import torch
from pydantic import ByteSize, TypeAdapter

from boxcrew.core.errors import UsageError
from boxcrew.hardware.cards import CARDS, find_card
from boxcrew.hardware.machine import Device, Machine, Speeds

USUAL = {"cores": "8 cores", "memory": "32GB", "nodes": "1 NUMA node"}  # unless described otherwise
MAX_DEVICES = 1024  # per item
# Of a GPU without a name only the float32 speed can be said. The rest is that of cards with little bandwidth:
COPIED_BYTES = 0.012  # per operation: an RTX 4090 has 1008 GB/s and 82.6 TFLOPS, others have more
FROM_HOST_BYTES = 12e9  # per second: 16 lanes of PCIe 3

_NUMBER = r"\d{1,9}(?:\.\d{1,3})?"
_SIZE = rf"{_NUMBER}\s*[kmgt]i?b"
_FORMS = {
    "accelerators": re.compile(
        rf"(?:(?P<num>\d{{1,9}})\s*x\s*)?(?P<size>{_SIZE})-"
        rf"(?:tpu|(?P<gpu>gpu)(?P<fp16>-fp16)?(?:@(?P<speed>{_NUMBER})\s*tflops)?)",
        re.IGNORECASE,
    ),
    "cores": re.compile(rf"(?P<num>{_NUMBER})\s*cores?", re.IGNORECASE),
    "memory": re.compile(rf"(?P<size>{_SIZE})", re.IGNORECASE),
    "nodes": re.compile(r"(?P<num>\d{1,9})\s*numa\s*nodes?", re.IGNORECASE),
}
_CARD = re.compile(r"(?:(?P<num>\d{1,9})\s*x\s*)?(?P<card>[a-z][a-z0-9 -]*)", re.IGNORECASE)
_ADVICE = (
    "write it like '2x24GB-gpu, 16 cores, 64GB', with 24GB-gpu-fp16, 24GB-gpu@40TFLOPS, 16GB-tpu or "
    f"2 NUMA nodes where they apply; or with cards: {', '.join(CARDS)}; "
    "or give the JSON file of `boxcrew devices --json`"
)


def assumed_machine(text: str) -> Machine:
    """Return the machine that `text` describes, or that of a JSON file (`….json`, or with a `/`).

    `2x24GB-gpu, 16 cores, 64GB`: items in any order and case. Accelerators may be of several kinds
    (`8xA100-80GB`, `24GB-gpu, 2x8GB-gpu`, `4x16GB-tpu`) and are numbered in that order. A GPU without a name
    computes bfloat16 unless it is written `24GB-gpu-fp16`; its float32 speed may be added:
    `24GB-gpu@40TFLOPS`. A plain size is main memory.

    1 GB is 10^9 bytes and 1 GiB 2^30. Vendors mostly write GB for GiB, but assuming less is safer.
    """
    if text.lower().endswith(".json") or "/" in text:
        machine = Machine.read(Path(text), setting="assume")
        idle = tuple(device.model_copy(update={"free_bytes": None}) for device in machine.devices)
        return machine.model_copy(update={"busy_cores": 0.0, "devices": idle})
    try:
        return _machine(text)
    except UsageError as error:
        raise UsageError(f"assume={text}: {error.message}", advice=_ADVICE) from None


def _machine(text: str) -> Machine:
    items: dict[str, list[re.Match[str]]] = {name: [] for name in _FORMS}
    for word in text.split(","):
        name, item = _item(word)
        if name != "accelerators" and items[name]:
            raise UsageError(f"'{item.string}': there is '{items[name][0].string}' already")
        items[name].append(item)
    cores, size, nodes = (items[name][0] if items[name] else _item(usual)[1] for name, usual in USUAL.items())
    memory = _bytes(size["size"])
    cpu = Device(name="cpu", kind="cpu", model="assumed CPU", memory_bytes=memory)
    return Machine(
        platform=f"Linux, assumed: {text}",
        python=python_version(),
        torch=torch.__version__,
        cores=float(cores["num"]),
        memory_bytes=memory,
        numa_nodes=int(nodes["num"]),
        devices=(cpu, *_accelerators(items["accelerators"])),
    )


def _item(word: str) -> tuple[str, re.Match[str]]:
    """Return the kind of an item, and its match."""
    word = word.strip()
    for name, form in _FORMS.items():
        if item := form.fullmatch(word):
            if any(float(number) == 0 for number in re.findall(_NUMBER, word)):
                raise UsageError(f"'{word}': must be above zero")
            return name, item
    item = _CARD.fullmatch(word)
    if item is None or find_card(item["card"]) is None or item["num"] == "0":
        raise UsageError(f"'{word}' does not describe a machine")
    return "accelerators", item


def _accelerators(items: Sequence[re.Match[str]]) -> list[Device]:
    devices: dict[str, list[Device]] = {"cuda": [], "xla": []}
    for item in items:
        num = int(item["num"] or 1)
        if num > MAX_DEVICES:
            raise UsageError(f"'{item.string}': at most {MAX_DEVICES} devices")
        device = _card(item["card"]) if item.re is _CARD else _described(item)
        same = devices[device.kind]
        names = [f"{device.kind}:{index}" for index in range(len(same), len(same) + num)]
        same += [device.model_copy(update={"name": name}) for name in names]
    return [*devices["cuda"], *devices["xla"]]


def _card(text: str) -> Device:
    found = find_card(text)
    assert found is not None, "checked before"
    name, card = found
    return Device(
        name="cuda",
        kind="cuda",
        model=f"assumed {name}",
        memory_bytes=card.memory_bytes,
        bf16=card.bf16,
        speeds=card.speeds(),
    )


def _described(item: re.Match[str]) -> Device:
    kind, title = ("cuda", "GPU") if item["gpu"] else ("xla", "TPU")
    speeds = None
    if item["speed"]:
        teraflops = float(item["speed"])
        rates = dict.fromkeys(("gemm", "convolution", "convolution_channels_last"), teraflops * 1e3)
        copied = teraflops * 1e12 * COPIED_BYTES
        speeds = Speeds(**rates, copy_bytes=copied, from_host_bytes=FROM_HOST_BYTES)
    memory = _bytes(item["size"])
    model = f"assumed {title}"
    return Device(
        name=kind, kind=kind, model=model, memory_bytes=memory, bf16=not item["fp16"], speeds=speeds
    )


def _bytes(size: str) -> int:
    return int(TypeAdapter(ByteSize).validate_python(size))
