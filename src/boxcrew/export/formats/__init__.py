"""The kinds of files that networks are exported to. Each is one module, registered in `FORMATS`.

Every export begins with an ONNX model, which `onnx` makes of the network and other formats convert.
"""

from boxcrew.export.formats._base import FORMATS, ExportFormat

__all__ = ["FORMATS", "ExportFormat"]
