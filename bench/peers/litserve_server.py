"""LitServe with an exported file: the same runtime of ours in each of two workers, with a thread each."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from boxcrew.core.types import Detections
from boxcrew.data.images.source_image import EncodedImage
from boxcrew.runtime.exported import ExportedPredictor, open_exported
from boxcrew.runtime.predictor import PreparedImage

WORKERS = 2
SCORE = 0.25

litserve: Any = importlib.import_module("litserve")


class Api(litserve.LitAPI):  # type: ignore[misc]
    """The steps of a request, as LitServe calls them in a worker."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self.model = model

    def setup(self, device: str) -> None:  # noqa: ARG002  its signature
        self.predictor = ExportedPredictor.of(open_exported(self.model, threads=1))

    def decode_request(self, request: Any) -> PreparedImage:
        return self.predictor.prepare(EncodedImage(request["photo"].file.read(), name="photo"))

    def predict(self, prepared: PreparedImage) -> Detections:
        (found,), _ = self.predictor([prepared])
        return found.above(SCORE)

    def encode_response(self, found: Detections) -> dict[str, Any]:
        rows = zip(found.boxes.tolist(), found.scores.tolist(), found.labels.tolist(), strict=True)
        return {"detections": [{"box": box, "score": score, "label": label} for box, score, label in rows]}


# Without one, LitServe hands on the form as it is.
del Api.decode_request.__annotations__["request"]


def main(model: str, port: str) -> None:
    server = litserve.LitServer(Api(Path(model)), accelerator="cpu", workers_per_device=WORKERS)
    server.run(port=int(port), host="127.0.0.1", generate_client_file=False, log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:])
