"""The libraries that compute an exported network. Each is one file, registered in `ENGINES`.

An engine gets a `ModelFile` and maps arrays to arrays; `onnxruntime` is the usual one.
"""

from boxcrew.runtime.engines._base import ENGINES, Engine, EngineClass, open_engine

__all__ = ["ENGINES", "Engine", "EngineClass", "open_engine"]
