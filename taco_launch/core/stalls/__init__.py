"""Judge whether a job works or hangs, and who waits for whom."""
