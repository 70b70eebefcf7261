"""TensorBoard beside a job, on its head."""
