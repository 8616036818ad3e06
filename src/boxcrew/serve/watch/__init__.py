"""A live page of trainings, for people: curves, plan, predictions, advice, and when each will end.

`folders` finds the runs below the directories that the user named, and `watcher` keeps them as they come and
go. Each is a `run.WatchedRun`, which reads the files that training writes (`reading`, `curves`, `log`,
`pictures`) and says what `state` it is in and how its plan did (`plan_rows`). `app` answers the page in
`page/` in JSON, and `server` runs it. Nothing is ever written, and nothing needs torch.
"""
