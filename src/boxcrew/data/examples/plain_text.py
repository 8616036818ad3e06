"""Text files: UTF-8, or an error that says where they are not."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.errors import DataError


def read_utf8(path: Path) -> str:
    """The content, with line ends of one kind."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"{path}: cannot be read: {reason}", advice="give a text file") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise DataError(
            f"{path}: is not UTF-8: byte {byte:#04x} at offset {error.start}", advice="save it as UTF-8"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
