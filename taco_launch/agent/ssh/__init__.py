"""Reach other hosts from a host, over shared connections."""
