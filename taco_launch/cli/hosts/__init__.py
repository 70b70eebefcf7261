"""Define the commands for hosts: setup, teardown, facts, inventory, trust, lab, metrics and others."""
