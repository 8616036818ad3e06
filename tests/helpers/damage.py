"""A Pascal VOC set on disk that is to be damaged, and ways to do it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

BILLION_LAUGHS = (
    "<!DOCTYPE a [<!ENTITY a0 'ha'>"
    + "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 11))
    + "]><annotation><filename>&a10;</filename></annotation>"
)
EXTERNAL_ENTITY = (
    "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><annotation><filename>&b;</filename></annotation>"
)


@dataclass(frozen=True)
class VocSet:
    root: Path

    def names(self, split: str) -> list[str]:
        return (self.root / "ImageSets" / "Main" / f"{split}.txt").read_text().split()

    def enlist(self, split: str, *names: str) -> None:
        with (self.root / "ImageSets" / "Main" / f"{split}.txt").open("a") as file:
            file.writelines(f"{name}\n" for name in names)

    def image(self, name: str) -> Path:
        return self.root / "JPEGImages" / f"{name}.jpg"

    def page(self, name: str) -> Path:
        return self.root / "Annotations" / f"{name}.xml"

    def change_page(self, name: str, tag: str, text: str) -> None:
        """All elements of that path."""
        tree = ET.parse(self.page(name))
        elements = tree.findall(tag)
        assert elements, tag
        for element in elements:
            element.text = text
        tree.write(self.page(name))

    def cut_image(self, name: str) -> None:
        whole = self.image(name).read_bytes()
        self.image(name).write_bytes(whole[: len(whole) // 2])


def write_png_bomb(path: Path, side: int = 20_000) -> None:
    """One bit a pixel, all black: some kilobytes of file, a gigabyte of RGB."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(side * (1 + side // 8)))
    body = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
