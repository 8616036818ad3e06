"""URLs of object storage: the schemes that are known, and the packages that they need."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from boxcrew.core.errors import UsageError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)  # a Path of a URL has one slash

PACKAGES = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
}
"""The schemes, each with the package that reads it and the extra of boxcrew that installs that."""


class Url(str):
    """The address of a directory or file in object storage: scheme://bucket/path, without a final slash."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a URL of a known scheme; `UsageError` if it is none, or has no bucket."""
        scheme, _, rest = text.partition("://")
        if scheme not in PACKAGES or not rest.strip("/"):
            raise UsageError(f"{text}: not a URL such as s3://bucket/path", advice=_known())
        return cls(f"{scheme}://{rest.strip('/')}")

    @property
    def scheme(self) -> str:
        return self.partition("://")[0]

    @property
    def path(self) -> str:
        """The bucket and the path in it."""
        return self.partition("://")[2]

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self}/{name}")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validated, serialization=core_schema.to_string_ser_schema()
        )


def _validated(value: object) -> Url:
    if isinstance(value, str) and is_url(value):
        return Url.of(value)
    raise ValueError("not a URL")


Location = Path | Url
"""Where something is stored: a path on this computer, or a URL."""


def scheme_of(value: object) -> str | None:
    """Return the scheme of a text that begins like a URL, or of a path made of one; else None."""
    scheme = _SCHEME.match(str(value)) if isinstance(value, str | Path) else None
    return None if scheme is None else scheme[1]


def is_url(value: object) -> bool:
    """Return whether a value is meant as a URL of a known scheme."""
    return isinstance(value, str) and scheme_of(value) in PACKAGES


def location_of(text: str) -> Location:
    """Return the path or the URL that a text means."""
    if is_url(text):
        return Url.of(text)
    refuse_url("run", text)
    return Path(text)


def refuse_url(key: str, value: object, *, known: bool = False) -> None:
    """Raise `UsageError` for a URL, which as a path would be a local directory of a strange name; with
    `known`, only for one of an unknown scheme.
    """
    scheme = scheme_of(value)
    if scheme is None or (known and scheme in PACKAGES and isinstance(value, str)):
        return
    if scheme in PACKAGES:
        raise UsageError(
            f"{key}={value}: {scheme}:// is not supported here, only files and directories of this computer",
            advice="give a path, such as one below which the storage is mounted",
        )
    raise UsageError(f"{key}={value}: {scheme}:// is not supported", advice=_known())


def require_package(url: Url) -> None:
    """Raise `UsageError` if the package that reads a URL is not installed."""
    package, extra = PACKAGES[url.scheme]
    if find_spec(package) is None:
        raise UsageError(
            f"{url}: {package} is not installed, which reads {url.scheme}://",
            advice=f"pip install 'boxcrew[{extra}]'",
        )


def _known() -> str:
    schemes = ", ".join(f"{scheme}://" for scheme in PACKAGES)
    return f"give a path of this computer, or a URL that begins with {schemes}"
