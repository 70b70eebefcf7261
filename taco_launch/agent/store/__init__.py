"""The state folder on disk: a folder per job, its records, and their recovery and removal."""
