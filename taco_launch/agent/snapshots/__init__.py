"""Snapshots of code on a host: kept by their hashes, taken from another host, written into a job's folder."""
