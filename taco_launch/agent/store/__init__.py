"""Keep the state folder: a folder per job, its records and locks."""
