"""What stands in a job's line, and why: decisions, profile options, overrides, remarks; for every launcher."""
