"""Metrics of a cluster's jobs and slots, as Prometheus reads them."""
