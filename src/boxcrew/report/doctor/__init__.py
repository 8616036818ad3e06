"""`boxcrew doctor`: one HTML page that says what is wrong in a detection data set and what to do.

`report.diagnose` opens and checks the data set and returns a `Diagnosis`; `summary` ranks what to do; `page`
puts the sections of `problems`, `classes`, `boxes` and `doubts` together, from `charts`,
`thumbnails` and `markup`.
"""
