"""Prove that set-up works: GPUs, network between containers, mpirun."""
