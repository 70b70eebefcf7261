"""Run benchmarks every night: schedule, cron or systemd, one run, its judge and summary."""
