"""Turn a tree or a git repository on the controller into a snapshot."""
