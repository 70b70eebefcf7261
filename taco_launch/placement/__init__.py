"""Where a job's ranks run, pure: which hosts (hosts.py, leaves.py), and which GPUs of a host (gpus.py)."""
