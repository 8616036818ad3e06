"""Uses networks that were exported to files, without torch; prediction with torch shares what it can.

An image goes through `predictor` (the input of the network, and boxes back in pixels of the image) to one of
the `engines`, which computes the network, and its candidates go through `suppression`. `model_info` is the
description that every exported file carries, `model_file` reads and writes such files and finds damage, and
`exported` opens them as predictors.
"""
