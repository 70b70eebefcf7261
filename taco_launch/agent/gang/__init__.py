"""Reach the guards of a job's hosts, and take slots on all of them together or on none."""
