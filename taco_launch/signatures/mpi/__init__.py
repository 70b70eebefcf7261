"""What MPI says when it fails: mpirun and its daemons, Open MPI in the ranks, MPICH and Intel MPI, and the networks under them."""
