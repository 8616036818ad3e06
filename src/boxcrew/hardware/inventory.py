"""A machine that is not here, from a few words about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from platform import python_version

import torch
from pydantic import ByteSize, TypeAdapter

from boxcrew.core.errors import UsageError
from boxcrew.hardware.machine import Device, Machine, Speeds

USUAL = ("8 cores", "32GB", "1 NUMA node")  # where nothing else is said
MAX_DEVICES = 1024  # that one item may name
# A GPU's float32 speed is all that is said about it. The rest is what the leanest of usual cards have:
COPIED_BYTES = 0.012  # an operation: an RTX 4090 has 1008 GB/s and 82.6 TFLOPS, others have more
FROM_HOST_BYTES = 12e9  # a second: 16 lanes of PCIe 3

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
_ADVICE = (
    "write it like '2x24GB-gpu, 16 cores, 64GB', with 24GB-gpu-fp16, 24GB-gpu@40TFLOPS, 16GB-tpu or "
    "2 NUMA nodes where they apply; or give the JSON file of `boxcrew devices --json`"
)


def assumed(text: str) -> Machine:
    """The machine that `text` describes, or the one in the JSON file that it names (`….json`, or with a `/`).

    `2x24GB-gpu, 16 cores, 64GB`: items in any order, in capitals or not. Accelerators may be of several kinds
    (`24GB-gpu, 2x8GB-gpu`, `4x16GB-tpu`) and get their numbers in that order. A GPU computes bfloat16, unless
    it is written `24GB-gpu-fp16`; its float32 speed may be added, `24GB-gpu@40TFLOPS`, else it is not known.
    A plain size is main memory.

    1 GB is 10^9 bytes and 1 GiB 2^30. Makers who say GB mostly mean GiB; but a plan must not be larger than
    what is there, and some of it is never free.
    """
    if text.lower().endswith(".json") or "/" in text:
        return _at_rest(Machine.read(Path(text), setting="assume"))
    try:
        return _machine(text, _items(text.split(",")))
    except UsageError as error:
        raise UsageError(f"assume={text}: {error.message}", advice=_ADVICE) from None


def _at_rest(machine: Machine) -> Machine:
    """What was free or busy when it was described is not so when it will be used."""
    devices = tuple(device.model_copy(update={"free_bytes": None}) for device in machine.devices)
    return machine.model_copy(update={"busy_cores": 0.0, "devices": devices})


def _items(words: Sequence[str]) -> Mapping[str, list[re.Match[str]]]:
    """By what they are about; the usual ones where there are none."""
    found: dict[str, list[re.Match[str]]] = {name: [] for name in _FORMS}
    for word in words:
        name, item = _item(word)
        if name != "accelerators" and found[name]:
            raise UsageError(f"'{item.string}': there is '{found[name][0].string}' already")
        found[name].append(item)
    for word in USUAL:
        name, item = _item(word)
        found[name] = found[name] or [item]
    return found


def _item(word: str) -> tuple[str, re.Match[str]]:
    word = word.strip()
    for name, form in _FORMS.items():
        if item := form.fullmatch(word):
            if any(float(number) == 0 for number in re.findall(_NUMBER, word)):
                raise UsageError(f"'{word}': must be above zero")
            return name, item
    raise UsageError(f"'{word}' says nothing about a machine")


def _machine(text: str, items: Mapping[str, Sequence[re.Match[str]]]) -> Machine:
    memory = _bytes(items["memory"][0]["size"])
    return Machine(
        platform=f"Linux, assumed: {text}",
        python=python_version(),
        torch=torch.__version__,
        cores=float(items["cores"][0]["num"]),
        memory_bytes=memory,
        numa_nodes=int(items["nodes"][0]["num"]),
        devices=(
            Device(name="cpu", kind="cpu", model="assumed CPU", memory_bytes=memory),
            *_accelerators(items["accelerators"]),
        ),
    )


def _accelerators(items: Sequence[re.Match[str]]) -> list[Device]:
    found: dict[str, list[Device]] = {"cuda": [], "xla": []}
    for item in items:
        num = int(item["num"] or 1)
        if num > MAX_DEVICES:
            raise UsageError(f"'{item.string}': at most {MAX_DEVICES} devices")
        kind, what = ("cuda", "GPU") if item["gpu"] else ("xla", "TPU")
        found[kind] += [
            Device(
                name=f"{kind}:{index}",
                kind=kind,
                model=f"assumed {what}",
                memory_bytes=_bytes(item["size"]),
                bf16=not item["fp16"],
                speeds=_speeds(float(item["speed"])) if item["speed"] else None,
            )
            for index in range(len(found[kind]), len(found[kind]) + num)
        ]
    return [device for devices in found.values() for device in devices]


def _speeds(teraflops: float) -> Speeds:
    return Speeds(
        gemm=teraflops * 1e3,
        convolution=teraflops * 1e3,
        convolution_channels_last=teraflops * 1e3,
        copy_bytes=teraflops * 1e12 * COPIED_BYTES,
        from_host_bytes=FROM_HOST_BYTES,
    )


def _bytes(size: str) -> int:
    return int(TypeAdapter(ByteSize).validate_python(size))
