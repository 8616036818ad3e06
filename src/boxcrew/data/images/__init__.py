"""Image files and their pixels, RGB uint8 (height, width, 3).

`reading` decodes files of many kinds, `source_image` no larger than is asked for, `jpeg` checks JPEG files
without decoding them, `cache` keeps decoded pixels for all loader processes, `drawing` draws boxes and grids
for people, and `video` reads and writes frames.

The data goes: file -> reading -> cache -> loader.
"""
