"""Job files, MPIJobs and matrices, read into requests."""
