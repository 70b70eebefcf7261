"""Parse the command line, make one call, show the result."""
