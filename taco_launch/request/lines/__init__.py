"""Command lines of other launchers and shells, read into requests."""
