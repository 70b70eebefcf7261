"""Nightly runs: when they run, what keeps them, one run, its judge and its summary."""
