"""Evaluates detectors: images -> `predictor` -> detections -> `matches` -> curves, AP, `DetectionReport`.

`types` has what goes in (`EvaluatedImage`) and comes out (`DetectionReport`); `metrics` computes the
report from `coco`, `curves` and `confusion`; `evaluator` runs a detector over a split; `suspects`
lists labels that a trained detector contradicts.
"""
