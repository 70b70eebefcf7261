"""Read the logs of benchmarks."""

# Of one log: more than any guide's, and still read in a second.
MOST_BYTES = 256 << 20
