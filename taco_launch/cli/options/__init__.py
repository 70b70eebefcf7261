"""Options: those of all verbs, those of a job, and what is said to whoever types another tool's."""
