"""Failure messages of mpirun and its daemons, Open MPI, MPICH, Intel MPI and the network libraries below them."""
