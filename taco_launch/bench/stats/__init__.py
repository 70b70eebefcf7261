"""Compute intervals, ratios, noise, drift, and the verdict of a nightly run."""
