"""Results for people and programs.

`plots` draws a run, a plan or the labels of a data set as PNG files. Three pages are one HTML file each:
`doctor` examines a data set, `compare` shows a comparison, and `study` a search. `predictions` and
`generated_images` have what networks predict as values; `predictions_folder`, `predictions_video` and
`predicted_labels` write what a detector found: as images, JSON, COCO and YOLO files, as a video, or as a
data set to correct. `json_array` writes long JSON item by item.
"""
