"""Object detectors: networks that find boxes and their classes in images.

What a user can choose has a module with a plain name (`ssd`, `ssdlite`) and registers itself in `DETECTORS`;
shared machinery is in modules that begin with an underscore, and other packages import it from here only.
Data flow: images -> `forward` -> raw outputs -> `candidates` -> `suppress` -> detections; training minimizes
`losses`.
"""

from boxcrew.detectors._anchor_coverage import AnchorCoverage, anchor_coverage, matched_fraction
from boxcrew.detectors._base import (
    DETECTORS,
    Candidates,
    DetectorConfig,
    DetectorNet,
    ImageBatches,
    build_detector,
    detector_config_class,
    input_hw,
)
from boxcrew.detectors._objects import Objects, counted_objects
from boxcrew.detectors._regions import ProposalConfig

__all__ = [
    "DETECTORS",
    "AnchorCoverage",
    "Candidates",
    "DetectorConfig",
    "DetectorNet",
    "ImageBatches",
    "Objects",
    "ProposalConfig",
    "anchor_coverage",
    "build_detector",
    "counted_objects",
    "detector_config_class",
    "input_hw",
    "matched_fraction",
]
