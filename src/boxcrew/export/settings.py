"""The settings of `boxcrew export`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from boxcrew.core.config import Tree
from boxcrew.core.errors import UsageError
from boxcrew.core.input_size import InputSize
from boxcrew.data.config import BoxOptions
from boxcrew.train.run.loading import Which


class ExportConfig(BoxOptions):
    run: Path
    """Run directory, or weight file."""
    format: str = "onnx"
    """Kind of file."""
    out: Path | None = None
    """File to write; a new one in the run's directory export/ if not given."""
    weights: Which = "best"
    """Weights to export."""
    size: InputSize | None = None
    """Another size of the input than in training."""
    nms: bool = False
    """Let the file choose the detections itself, with the threshold as an input."""
    int8: bool = False
    """Compute with integers of 8 bits."""
    photos: int = Field(default=100, ge=1)
    """Training photos that int8 is calibrated with."""
    max_loss: float = Field(default=0.005, ge=0, le=1)
    """AP that a file with int8 may lose."""
    force: bool = False
    """Write a file with int8 that loses more."""
    data: str | None = None
    """Data set that the file is proved on, and int8 calibrated with; the run's own if not given."""
    split: str = "val"
    """Part of the data set that the file is proved on."""
    proof: bool = True
    """Compare the file with the network on real samples before it is written."""
    triton: bool = False
    """Also write a model folder for Triton."""

    @model_validator(mode="after")
    def _is_consistent(self) -> ExportConfig:
        if self.int8 and not self.proof:
            raise UsageError(
                "int8=true with proof=false: the lost accuracy would be unknown", advice="leave proof= out"
            )
        if self.force and not self.int8:
            raise UsageError("force=true: is for int8=true only; other files are exact or not written")
        return self

    def val_settings(self) -> Tree:
        """Return the settings of an evaluation on the same data."""
        options = {
            name: getattr(self, name) for name in BoxOptions.model_fields if name in self.model_fields_set
        }
        return {"run": self.run, "data": self.data, "split": self.split, "weights": self.weights, **options}
