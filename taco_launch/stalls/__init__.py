"""Whether a job works or hangs, and who waits for whom: judged by progress, bytes and stacks, never by CPU use alone. Pure."""
