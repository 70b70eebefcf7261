"""Read command lines of other launchers and shells into requests."""
