"""Sets of samples that have one label each, or none: images, table rows, texts.

`open_examples` (`example_set.py`) detects the format and returns an `ExampleSet`: splits of `Examples` that
give inputs of one shape, the classes, the problems met in the files, and the `encoding` that turns new data
into the same inputs. Each format is a file in `formats/`; beside it lie what formats share: class folders,
crops of images, tables and their columns, alphabets and text windows, and validation splits (`labelled.py`).
"""
