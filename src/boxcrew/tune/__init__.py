"""Searches for better settings: many short trainings, of which the promising ones are continued.

`settings` are those of a study; `words`, `ready` and `choose` make its `space`; `prepare` decides all else
at the start and stores it (`record`). `scheduler` decides which training is continued or started, with
settings that `sampling` draws, and `runner` lets processes (`worker`) do it, until `budget` ends the
search. `finish` completes the best, `conclusion` says whether it is better than the recipe, `report`
writes all that is known, and `best` has the best settings. A trial is an ordinary run.
Data flow: settings -> record -> decisions and runs -> events (`ledger`) -> report.
"""
