"""Read job files, MPIJobs and PyTorchJobs into requests."""
