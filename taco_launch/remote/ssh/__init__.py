"""Hosts over SSH: connections, keys, host keys, configuration. The only room that knows fabric and paramiko."""
