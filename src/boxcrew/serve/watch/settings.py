"""The settings of `boxcrew watch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from boxcrew.core.config import Config, commas
from boxcrew.core.errors import UsageError
from boxcrew.serve.listening import is_loopback
from boxcrew.serve.settings import require_token


class WatchConfig(Config):
    run: Annotated[tuple[Path, ...], commas] = (Path("runs"),)
    """Runs to watch, or folders of runs, with commas between."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one needs a token."""
    port: int = Field(default=8001, ge=0, le=65535)
    """Port to listen on; 0 for any that is free."""
    token: str | None = None
    """Secret that the page asks for; BOXCREW_TOKEN in the environment if not given."""

    @model_validator(mode="after")
    def _can_be_shown(self) -> WatchConfig:
        if self.token is not None:
            require_token(self.token)
        elif not is_loopback(self.host):
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
