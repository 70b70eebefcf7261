"""Define the commands for jobs: run, submit, list, get, logs, wait, stop and others."""
