"""Hold the values of a sweep: matrix, runs, the order of a ladder."""
