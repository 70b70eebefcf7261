"""A host's interfaces, routes and firewall, and which interface a job uses."""
