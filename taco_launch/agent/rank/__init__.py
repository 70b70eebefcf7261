"""What runs around a rank or beside it: its wrapper, the wrapper of mpirun's daemon, and `exec`."""
