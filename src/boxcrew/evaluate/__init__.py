"""Measures how good a trained network is, and says what is wrong with its data or training.

`detection`, `classification`, `language` and `frechet` compute the metrics of one kind of prediction;
`evaluation` is what they have in common. `label_noise` estimates wrong labels, and `advice` turns such
findings into one line each. Predictions and targets go in, a report (numbers that can be written as JSON)
comes out; nothing here trains.
"""
