"""The libraries that compute an exported network. Each is one file, registered in `ENGINES`."""

from boxcrew.runtime.engines._base import ENGINES, Engine, EngineClass, open_engine

__all__ = ["ENGINES", "Engine", "EngineClass", "open_engine"]
