"""Decide the state of a job, which waiting job starts, and where its time went."""
