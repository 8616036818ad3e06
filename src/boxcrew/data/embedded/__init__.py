"""Data sets that are made by code: nothing to download, the same bits on every machine.

`shelf` draws images of products with exact boxes; `shop_talk` writes text. `detection.formats.shelf` and
`examples.formats` open them by name.
"""
