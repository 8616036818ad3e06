"""Text files must be UTF-8; the error of one that is not says where."""

from __future__ import annotations

from pathlib import Path

from boxcrew.core.errors import DataError


def read_utf8(path: Path) -> str:
    """Return the content without byte order mark, every line end as a newline."""
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
