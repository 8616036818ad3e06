"""FastAPI with a run and torch, as its documentation shows it: the detector is loaded, a route calls it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from boxcrew import Detector


def main(run: str, port: str) -> None:
    fastapi: Any = importlib.import_module("fastapi")
    uvicorn: Any = importlib.import_module("uvicorn")
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)  # more cost more with several requests at once
    detector = Detector.load(run, device="cpu")
    app = fastapi.FastAPI()

    def detect(photo: bytes = fastapi.File()) -> dict[str, Any]:
        found = detector.predict(photo)
        rows = zip(found.boxes.tolist(), found.scores.tolist(), found.labels.tolist(), strict=True)
        return {"detections": [{"box": box, "score": score, "label": label} for box, score, label in rows]}

    detect.__annotations__["photo"] = bytes  # FastAPI looks at the types themselves
    app.post("/predict")(detect)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")


if __name__ == "__main__":
    main(*sys.argv[1:])
