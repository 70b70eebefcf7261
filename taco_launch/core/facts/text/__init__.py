"""Split the output of the probe and of terminals into sections and lines."""
