"""Hosts as values: the inventory's, and the facts of their hardware and software."""
