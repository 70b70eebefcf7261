"""A rank that meets all others where MASTER_ADDR and MASTER_PORT say, as torch.distributed does, in a fraction of its time."""

import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def meet() -> int:
    """Return the sum of all ranks' numbers, once all of them are there."""
    if rank == 0:
        with socket.create_server(("", where[1])) as server:
            others = [server.accept()[0] for _other in range(size - 1)]
        total = sum(int(other.recv(16)) for other in others)
        for other in others:
            other.sendall(b"%d" % total)
            other.close()
        return total
    while True:  # until rank 0 listens
        try:
            with socket.create_connection(where) as connection:
                connection.sendall(b"%d" % rank)
                return int(connection.recv(16))
        except ConnectionRefusedError:
            time.sleep(0.05)


print(f"met as rank {rank} of {size}: {meet()}", flush=True)
