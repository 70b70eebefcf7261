"""The verbs of hosts: setup, teardown, trust, facts, inventory, lab, metrics."""
