"""Describe jobs to Slurm, and read what its programs print."""
