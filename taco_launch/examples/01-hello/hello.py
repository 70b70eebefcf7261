"""Prints where this rank runs, and its place among all ranks."""

import os
import socket

rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
here, ranks_here = os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]
print(f"hello from {socket.gethostname()}: rank {rank} of {size}, rank {here} of {ranks_here} on this host")
