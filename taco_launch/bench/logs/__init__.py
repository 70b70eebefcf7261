"""Logs of benchmarks: which lines say something, and what each comes to."""
