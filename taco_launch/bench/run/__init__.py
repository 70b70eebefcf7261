"""Run a matrix or a ladder and record its environment."""
