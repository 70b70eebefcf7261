"""One host: its processes, GPUs and ports, and who holds its slots."""
