"""HEIC, the format of photos on iPhones, which Pillow reads only with the package `pillow-heif`."""

from __future__ import annotations

HEAD_BYTES = 64
"""The first bytes of a file that tell whether it is HEIC."""

_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"})


def is_heic(head: bytes) -> bool:
    """Return whether a file that begins with `head` is HEIC, whatever its name. Its first box (ISO/IEC
    14496-12, 4.3) lists brands; AVIF has the same box with other brands.
    """
    if head[4:8] != b"ftyp":
        return False
    end = min(int.from_bytes(head[:4], "big"), len(head))
    return any(head[i : i + 4] in _BRANDS for i in range(8, end, 4))


def register_heic() -> bool:
    """Make Pillow read HEIC. Return whether the package for it is installed."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener(thumbnails=False)
    return True
