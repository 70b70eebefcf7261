"""Hosts over SSH: connections, keys, host keys, configuration. The only package that imports fabric and paramiko."""
