"""Code on the controller: a tree or a git repository -> a snapshot, known by its hash."""
