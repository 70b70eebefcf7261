"""Serve the queue of a state folder: which jobs wait, and which starts next."""
