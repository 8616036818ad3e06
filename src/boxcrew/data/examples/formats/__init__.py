"""The formats of labeled samples, one file each: a class that registers itself in `EXAMPLE_FORMATS`.

A format detects its files, reads them, holds out a validation split if there is none, and returns an
`ExampleSet`.
"""
