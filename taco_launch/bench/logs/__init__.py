"""Logs of benchmarks: which lines say something, and what each comes to."""

# Of one log: more than any guide's, and still read in a second.
MOST_BYTES = 256 << 20
