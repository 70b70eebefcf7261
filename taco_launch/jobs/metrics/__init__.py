"""Export jobs and slots as Prometheus metrics."""
