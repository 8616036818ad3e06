"""The settings of `boxcrew serve`."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from boxcrew.core.config import Config, Names
from boxcrew.core.errors import UsageError
from boxcrew.core.units import parse_duration
from boxcrew.serve.listening import is_loopback

Duration = Annotated[
    float, BeforeValidator(lambda value: parse_duration(value) if isinstance(value, str) else value)
]

_TOKEN_LETTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)
_LEAST_TOKEN = 8


class ServeConfig(Config):
    run: str | None = None
    """Run directory, or exported file."""
    runs: Names = ()
    """Several of them, with commas between."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback one needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 for any that is free."""
    engine: str | None = None
    """Library that computes the files: the usual one if not given, `auto` for the fastest here."""
    int8: bool = False
    """Serve runs with integers of 8 bits."""
    token: str | None = None
    """Secret that clients have to send; BOXCREW_TOKEN in the environment if not given."""
    workers: int = Field(default=0, ge=0, le=256)
    """Photos that are computed at once; 0 for one on each core."""
    queue: int = Field(default=0, ge=0, le=10_000)
    """Photos that may wait or be computed; 0 for 16 for each worker."""
    timeout: Duration = Field(default=10.0, gt=0, le=600)
    """Time from the beginning of a request to its answer, at most."""
    drain: Duration = Field(default=30.0, gt=0, le=3600)
    """Time for the requests that were accepted before the signal to end."""
    label_studio: Path | None = None
    """Folder with the files of Label Studio, of which its tasks may name the photos."""
    follow: bool = False
    """Take a new file as soon as one replaces the old."""

    on: Literal["machine", "ray"] = "machine"
    """Where it runs: in a process of this machine, or as replicas on a cluster of Ray."""
    replicas: int = Field(default=0, ge=0, le=10_000)
    """Replicas on Ray, at most; 0 for as many as its cores allow."""

    @model_validator(mode="after")
    def _is_consistent(self) -> ServeConfig:
        if (self.run is None) is not bool(self.runs):
            raise UsageError("run=: give either run= or runs=", advice="boxcrew serve run=runs/detect/train")
        if self.label_studio is not None and not self.label_studio.is_dir():
            raise UsageError(f"label_studio={self.label_studio}: no such folder")
        if self.on == "ray" and self.follow:
            raise UsageError("follow=true: not with on=ray", advice="serve the new file with a new command")
        if self.on == "machine" and self.replicas:
            raise UsageError("replicas=: only with on=ray", advice="workers= are those of this process")
        if self.token is not None:
            require_token(self.token)
        if self.token is None and not is_loopback(self.host):
            raise UsageError(
                f"host={self.host}: others can reach this address, so clients have to send a token",
                advice="give token=SECRET, or set BOXCREW_TOKEN",
            )
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The runs or files to serve."""
        return self.runs or (self.run or "",)


def require_token(token: str) -> None:
    """Raise `UsageError` for a token that could not be sent, or be guessed too easily."""
    if len(token) < _LEAST_TOKEN or not set(token) <= _TOKEN_LETTERS:
        raise UsageError(f"token=: must have at least {_LEAST_TOKEN} letters or digits, without spaces")
