"""Watches the files of the served models, and loads a file again after it was replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

from boxcrew.core.errors import BoxcrewError
from boxcrew.runtime.model_file import DESCRIPTION
from boxcrew.serve.service import Service

_INTERVAL = 0.5  # seconds between two looks

_Stamp = tuple[int, int, int] | None
"""Number, time of change and size of a file; None while it is away."""


async def reload_on_change(service: Service) -> None:
    """Reload models whose files have changed, without an end. A file is tried once: one that cannot be used
    is reported, and the old model stays in use until there is another file.
    """
    sources = service.models.sources()
    stamps = {source.name: _stamp(source.path) for source in sources}
    while True:
        await asyncio.sleep(_INTERVAL)
        for source in sources:
            stamp = _stamp(source.path)
            if stamp is not None and stamp != stamps[source.name]:
                stamps[source.name] = stamp
                await _reload(service, source.name)


async def _reload(service: Service, name: str) -> None:
    try:
        model = await service.pool.run(lambda: service.models.reload(name))
    except BoxcrewError as error:
        service.log.failure("reload", error, model=name)
    else:
        service.log.write("reload", model=name, version=model.version)


def _stamp(path: Path) -> _Stamp:
    """Return what changes with an exported file, or with the folder of one."""
    try:
        status = (path / DESCRIPTION if path.is_dir() else path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
