"""The embedded product set `shelf`: scenes of eight classes of products, drawn by code from a seed.

`layout` chooses a setting, places items in it and derives the boxes, `scene` paints the result: `surfaces`
for furniture and walls, then each item's `design` with a `brush`. `products*` and `distractors` hold the
designs: a function each that yields an outline and then paints, in the drawing units of `geometry`.
"""
