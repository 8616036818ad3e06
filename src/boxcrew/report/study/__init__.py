"""The page of a study of `boxcrew tune`: one HTML file that needs no other, and runs nothing.

`types` is what is known of a study, also as JSON. `page` puts together `overview` (what it is worth, and the
best settings), `plots` (history, importance, parallel coordinates, slices, curves) and `details` (time,
trials, space). `drawing` has the scales and marks of the plots.
Data flow: StudyReport -> sections -> page.
"""
