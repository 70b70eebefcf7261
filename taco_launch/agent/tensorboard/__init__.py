"""Run TensorBoard next to a job, on its head."""
