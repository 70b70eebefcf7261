"""The known texts, one file per speaker: mpirun, NCCL, torch, ssh, docker, the kernel."""
