"""The plans of jobs, one file for each launcher: what is started, and how a person would type it."""
