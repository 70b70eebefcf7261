"""What a person asks a job to be: read from job files, MPIJobs and matrices, put together, and resolved into a JobSpec."""
