"""Export jobs and slots as Prometheus metrics."""

from pathlib import Path

# Alert rules for Prometheus and dashboards for Grafana, each a file.
MONITORING = Path(__file__).with_name("monitoring")
