"""Benchmarks: what their logs say, and how the rates scale with the number of ranks."""
