"""Evaluates detectors: images -> `predictor` -> detections -> `matches` -> curves, AP, `DetectionReport`.

`metric` has the types that go in (`EvaluatedImage`) and come out (`DetectionReport`); `measures` computes the
report from `coco`, `curves` and `confusion`; `evaluator` runs a detector over a split; `suspects`
lists labels that a trained detector contradicts.
"""
