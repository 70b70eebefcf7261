"""Hold the values of set-up: stages, operations, packages, files, containers of jobs."""
