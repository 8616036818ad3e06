"""ONNX, written by torch's exporter."""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from boxcrew.core.errors import ExportError
from boxcrew.export.formats._base import FORMATS, ExportFormat
from boxcrew.export.graphs import ExportGraph
from boxcrew.export.operators import OPSET, translations
from boxcrew.runtime.engines import open_engine
from boxcrew.runtime.model_file import MODEL

_LONGEST = 4096  # of an axis of any length
_NOISY = ("torch.onnx", "onnxscript", "onnx_ir")  # loggers that tell what they optimize


def onnx_model(graph: ExportGraph, *, others: Mapping[Any, Callable[..., Any]] | None = None) -> bytes:
    """Return an ONNX model with inputs of any batch, and of any length where the network takes it. `others`
    are functions that write further operators in another way than usual.
    """
    require_exporter()
    module = copy.deepcopy(graph.module).to(memory_format=torch.contiguous_format)
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module,
                graph.traced_inputs(),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_shapes=(dynamic_axes(graph),),
                custom_translation_table={**translations(), **(others or {})},
                external_data=False,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        raise ExportError(f"format=onnx: torch's exporter fails: {reason.strip()}") from error
    assert program is not None
    model: Any = program.model_proto
    _remove_traces(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _remove_traces(message: Any) -> None:
    """Remove what the exporter notes about source files of this machine, at any depth."""
    for field, value in message.ListFields():
        if field.name in {"metadata_props", "doc_string"}:
            message.ClearField(field.name)
        elif field.message_type is not None and field.name not in {"initializer", "dims"}:
            for inner in value if isinstance(value, Iterable) else (value,):
                _remove_traces(inner)


def dynamic_axes(graph: ExportGraph) -> tuple[dict[int, Any], ...]:
    """Return the axes of any length of each input, as torch's exporter wants them."""
    axes = {name for named in graph.axes.values() for name in named.values()}
    sizes = {name: torch.export.Dim(name, min=1, max=_LONGEST) for name in axes}
    return tuple({axis: sizes[name] for axis, name in named.items()} for named in graph.axes.values())


def require_exporter() -> None:
    """Raise an error if a package that writes ONNX files is missing."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            raise ExportError(
                f"format=onnx: {package} is not installed", advice="pip install 'boxcrew[export]'"
            ) from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, whose remarks are not for users."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


FORMATS.register("onnx")(
    ExportFormat(
        convert=lambda _, model: {MODEL: model},
        open=lambda file, threads: open_engine("onnxruntime", file, threads=threads),
        engine="onnxruntime",
        require=lambda: None,  # every export needs these packages
        takes_int8=True,
    )
)
