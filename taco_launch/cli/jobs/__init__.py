"""The verbs of jobs: run, submit, list, get, logs, wait, stop, delete, suspend, exec, place, explain."""
