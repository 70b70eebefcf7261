"""Know one host: processes, GPUs, ports, and who holds which slot."""
