"""Results for people and programs.

`plots/` draws a run, a plan or the labels of a data set as PNG files, `doctor/` examines a data set and makes
an HTML page, `predictions` has what networks predict as values, and `predictions_folder` and
`predictions_video` write what a detector found as images, JSON, COCO and YOLO files, or as a video.
"""
