"""Show results: tables, JSON, YAML, progress."""
