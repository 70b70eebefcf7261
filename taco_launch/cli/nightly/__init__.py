"""The verbs of nightly: install, run, status, baseline."""
