"""What mpirun, ssh, Horovod, NCCL, torch, docker and the kernel say when they fail, one file per speaker, pure."""
