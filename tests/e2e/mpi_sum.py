"""A rank of MPICH or Intel MPI by the ABI that they share (libmpi.so.12): prints the sum of 1, 2, ... of all ranks.

mpi_sum.py LIBRARY [CODE]: with CODE rank 1 ends with that code afterwards, the others wait for ever.
"""

import ctypes
import os
import sys
import time

WORLD, INT, SUM = 0x44000000, 0x4C000405, 0x58000003  # MPI_COMM_WORLD, MPI_INT, MPI_SUM in mpi.h of MPICH

mpi = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
assert mpi.MPI_Init(None, None) == 0
mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
own = ctypes.c_int(rank.value + 1)
assert mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, INT, SUM, WORLD) == 0
print(
    f"rank {rank.value} of {size.value}: {total.value}, {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True
)
if len(sys.argv) > 2:
    if rank.value == 1:
        os._exit(int(sys.argv[2]))
    time.sleep(600)
mpi.MPI_Finalize()
