"""Measure how jobs scale, keep the history, compare runs, and run every night."""
