"""Sets of samples that have one label each, or none: images, table rows, texts.

`open_examples` (`example_set.py`) detects the format and returns an `ExampleSet`: its splits (each an
`ExampleSplit`) with inputs of one shape, the classes, the problems met in the files, and the `encoding` that
turns new data into the same inputs. Each format is a file in `formats/`; what formats share lies
beside it: class folders, crops of images, tables and their columns, alphabets and text windows, and
validation splits (`labeled.py`).
"""
