"""Run commands on a host, local or remote, and build the agent's zipapp for it."""
