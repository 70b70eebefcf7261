"""Supervise one attempt of a job on the head: place it, start it, follow it, end it."""
