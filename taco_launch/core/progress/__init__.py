"""Read step, rate and loss from lines of training programs.

How it is to be called, once guards do so: a guard has one `tracker.Tracker` for its ranks and calls
`feed(now, rank, line)` for each line of their logs, carriage returns taken for line ends; `tracker.best()` is what `get`
shows, and `Progress.step` the `step` of a `Look`. With `--progress REGEX` the pattern is checked by `pattern.compiled`
where the job is submitted, and matched by `pattern.read` in `agent.bounded.bounded`, since even a simple pattern may take
seconds on some line; its readings go to `Tracker.take`.
"""
