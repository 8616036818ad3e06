"""Searches for better settings: many short trainings, of which the promising ones go on.

`settings` are those of a study; `words`, `ready` and `choose` make its `space`; `prepare` decides all else at
the start and stores it (`record`). `scheduler` decides which training goes on or begins, with settings that
`sampling` draws, and `runner` lets processes (`worker`) do it, until `budget` ends the search. `finish`
completes the best, `report` tells what came of it, `best` has its settings. A trial is an ordinary run.
Data flow: settings -> record -> decisions and runs -> events (`ledger`) -> report.
"""
