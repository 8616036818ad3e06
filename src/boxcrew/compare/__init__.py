"""Comparisons: several recipes trained on the same data, backbone, seed and budget, or finished runs.

`settings` turns words into the runs to be made, `trainings` makes those that are not finished, `rows` reads
what each run has reached, and `results` writes the table, the pictures and the page.
Data flow: settings -> runs in one directory -> rows -> files.
"""
