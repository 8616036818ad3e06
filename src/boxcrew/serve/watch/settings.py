"""The settings of `boxcrew watch`."""

from __future__ import annotations

import ipaddress
import string
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from boxcrew.core.config import Config, commas
from boxcrew.core.errors import UsageError

_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)
_LEAST_TOKEN = 8


class WatchConfig(Config):
    run: Annotated[tuple[Path, ...], commas] = (Path("runs"),)
    """Runs to watch, or folders of runs, with commas between."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one needs a token."""
    port: int = Field(default=8001, ge=0, le=65535)
    """Port to listen on; 0 for any that is free."""
    token: str | None = Field(default=None, repr=False)
    """Secret that the page asks for; BOXCREW_TOKEN in the environment if not given."""

    @model_validator(mode="after")
    def _is_safe(self) -> WatchConfig:
        if self.token is not None and (
            len(self.token) < _LEAST_TOKEN or not set(self.token) <= _TOKEN_LETTERS
        ):
            raise UsageError(f"token=: must have at least {_LEAST_TOKEN} letters or digits, without spaces")
        if self.token is None and not self.is_loopback:
            raise UsageError(
                f"host={self.host}: others can reach this address, so the page has to ask for a token",
                advice="give token=SECRET, or set BOXCREW_TOKEN",
            )
        for path in self.run:
            if not path.is_dir():
                raise UsageError(
                    f"run={path}: no such directory",
                    advice="give a run, such as runs/detect/train, or a folder of runs",
                )
        return self

    @property
    def is_loopback(self) -> bool:
        """Return whether only programs on this machine can reach the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
