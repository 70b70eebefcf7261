"""Collect what a colleague needs to look into a job, and mask the secrets that can be recognised."""
