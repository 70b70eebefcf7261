"""Judge whether hosts are healthy: one verdict for each check, with its evidence, whose rule it is, and what to do."""
