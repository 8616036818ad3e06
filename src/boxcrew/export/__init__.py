"""Writes trained networks as files for other programs, and proves that the files compute the same.

`run` does it all, by `settings`: `graphs` makes of a trained task the network that a file contains, and
`describe` its description; `formats` has one module for each kind of file, `operators` and `cells` give ours
another form; `int8` makes a smaller file with integers. `proof` tries the file on real samples,
`parity` compares results, `costs` measures both sides, and `triton` adds a folder for that server.
"""
