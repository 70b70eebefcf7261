"""Logs of ranks: written in segments, with the times of their bytes, merged, and queried."""
